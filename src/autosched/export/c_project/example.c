/* Opens a network, and runs it: example NETWORK.asn [INPUT ...] [-- OUTPUT ...]

   Each INPUT is a file with the elements of an input, in the machine's own form; without them, inputs are zero. Outputs
   are written to the OUTPUT files. Prints the first elements of outputs of float32. */

#include "autosched_network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHOWN 5

static void *zeros(size_t bytes) {
    void *memory = calloc(bytes + 1, 1);
    if (memory == NULL) {
        fprintf(stderr, "there is no memory\n");
        exit(1);
    }
    return memory;
}

static void transfer(const char *path, const char *mode, as_array array) {
    FILE *file = fopen(path, mode);
    size_t done = file == NULL ? 0
                  : *mode == 'r' ? fread(array.data, 1, array.bytes, file)
                                 : fwrite(array.data, 1, array.bytes, file);
    if (file == NULL || done != array.bytes || fclose(file) != 0) {
        fprintf(stderr, "%s: %zu bytes are wanted\n", path, array.bytes);
        exit(1);
    }
}

int main(int count, char **words) {
    as_network *network = NULL;
    as_session *session = NULL;
    if (count < 2) {
        fprintf(stderr, "usage: %s NETWORK.asn [INPUT ...] [-- OUTPUT ...]\n", words[0]);
        return 2;
    }
    if (as_network_open(words[1], &network) != 0 || as_session_new(network, 0, &session) != 0) {
        fprintf(stderr, "%s\n", as_message());
        return 1;
    }
    size_t input_count = as_input_count(network), output_count = as_output_count(network);
    as_array *inputs = zeros(input_count * sizeof *inputs), *outputs = zeros(output_count * sizeof *outputs);
    int word = 2;
    for (size_t n = 0; n < input_count; n++) {
        inputs[n].bytes = as_input(network, n)->bytes;
        inputs[n].data = zeros(inputs[n].bytes);
        if (word < count && strcmp(words[word], "--") != 0) {
            transfer(words[word++], "rb", inputs[n]);
        }
    }
    for (size_t n = 0; n < output_count; n++) {
        outputs[n].bytes = as_output(network, n)->bytes;
        outputs[n].data = zeros(outputs[n].bytes);
    }
    struct timespec began, ended;
    clock_gettime(CLOCK_MONOTONIC, &began);
    if (as_run(session, inputs, input_count, outputs, output_count) != 0) {
        fprintf(stderr, "%s\n", as_message());
        return 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%s: %.3f ms, the first time\n", as_name(network),
           1e3 * (double)(ended.tv_sec - began.tv_sec) + 1e-6 * (double)(ended.tv_nsec - began.tv_nsec));
    word += word < count;
    for (size_t n = 0; n < output_count; n++) {
        const as_tensor *tensor = as_output(network, n);
        printf("%s: %s, %zu bytes", tensor->name, tensor->type, tensor->bytes);
        for (size_t at = 0; strcmp(tensor->type, "float32") == 0 && at < SHOWN && 4 * at < tensor->bytes; at++) {
            float element;
            memcpy(&element, (char *)outputs[n].data + 4 * at, sizeof element);
            printf(" %g", (double)element);
        }
        printf("\n");
        if (word < count) {
            transfer(words[word++], "wb", outputs[n]);
        }
        free(outputs[n].data);
    }
    for (size_t n = 0; n < input_count; n++) {
        free(inputs[n].data);
    }
    free(inputs);
    free(outputs);
    as_session_free(session);
    as_network_close(network);
    return 0;
}
