"""A network as a service of FastAPI.

    NETWORK=net.asn gunicorn --preload --workers 4 --worker-class uvicorn_worker.UvicornWorker fastapi_service:app

--preload loads the network before the workers are forked, so that they share its weights. POST /run takes and gives
JSON: lists of numbers by the names of inputs and outputs. GET /health checks the network.
"""

import os
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException

import autosched_runtime

app = FastAPI()
network = autosched_runtime.load(os.environ["NETWORK"])
DTYPES = {tensor.name: tensor.dtype for tensor in network.description.inputs}


@app.post("/run")
def run(inputs: dict[str, Any]) -> dict[str, Any]:
    """Runs the network, in one of FastAPI's threads."""
    try:
        arrays = {name: np.array(value, DTYPES.get(name)) for name, value in inputs.items()}
        outputs = network.run(arrays)
    except (autosched_runtime.InvalidInput, ValueError, TypeError, OverflowError) as error:
        raise HTTPException(400, str(error)) from error
    names = [tensor.name for tensor in network.description.outputs]
    return {name: array.tolist() for name, array in zip(names, outputs, strict=True)}


@app.get("/health")
def health() -> dict[str, str]:
    """Checks that the network gives what it was verified with."""
    if any(list(sample.differing(network.run(sample.inputs))) for sample in network.samples()):
        raise HTTPException(500, "outputs differ")
    return {"status": "fine"}
