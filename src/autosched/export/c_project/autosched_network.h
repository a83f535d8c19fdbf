/* Runs a network that autosched has compiled, NAME.asn, from C or C++.

   A network is opened once in a process. A session serves one thread at a time, and is cheap: each thread makes its own.
   Every function that returns an int returns 0, or -1 after an error; as_message() then says what is wrong. No function
   ends the process or throws an exception. Linux, little-endian machines. */

#ifndef AUTOSCHED_NETWORK_H
#define AUTOSCHED_NETWORK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct as_network as_network;
typedef struct as_session as_session;

/* An input or output. All of it lives as long as the network. */
typedef struct {
    const char *name;
    const char *type;     /* NumPy's name of the type of its elements: "float32", "int64", "bool" */
    int dimensions;
    const int64_t *shape; /* sizes of its dimensions; the last one varies fastest in memory */
    size_t bytes;         /* size of all its elements */
} as_tensor;

/* Memory of the caller with the elements of one tensor, without gaps, at any address. */
typedef struct {
    void *data;
    size_t bytes;
} as_array;

/* Opens a network. Its file may be replaced or deleted afterwards. */
int as_network_open(const char *path, as_network **network);
/* The same for a file of networks for several shapes of the inputs: number counts from 0, by size. An error if there are
   no more. */
int as_network_open_shape(const char *path, size_t number, as_network **network);
/* Frees a network whose sessions were freed. NULL is allowed. */
void as_network_close(as_network *network);

const char *as_name(const as_network *network);
/* Number of cores for which the network was tuned. */
int as_cores(const as_network *network);
size_t as_input_count(const as_network *network);
size_t as_output_count(const as_network *network);
/* NULL for a number that is too large. */
const as_tensor *as_input(const as_network *network, size_t number);
const as_tensor *as_output(const as_network *network, size_t number);

/* Makes a session. threads: number of threads of an inference; 0: the number of cores for which the network was tuned,
   at most those that the process may use. */
int as_session_new(as_network *network, int threads, as_session **session);
/* NULL is allowed. */
void as_session_free(as_session *session);

/* Runs one inference: reads all inputs, and writes all outputs, in their order. */
int as_run(as_session *session, const as_array *inputs, size_t input_count, const as_array *outputs,
           size_t output_count);

/* What the last error of the calling thread was; valid until its next one. */
const char *as_message(void);

#ifdef __cplusplus
}
#endif

#endif
