/* Reads NAME.asn, and calls TVM's runtime through its C interface (tvm-ffi 0.1.14, tvm/ffi/c_api.h). */

#define _GNU_SOURCE
#include "autosched_network.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Newest format that is read here. */
#define FORMAT 2
/* Bytes to whose multiples kernels expect tensors to be aligned. */
#define ALIGNMENT 64
#define MESSAGE_MAX 1000
/* Maximum length of a path of a file in memory. */
#define PATH_BYTES 128
/* Flag of a file in memory whose content may be executed (Linux 6.3, MFD_EXEC). */
#define EXECUTABLE 0x10
/* TVM's affinity mode in which each thread of a pool may run on all its cores. */
#define SHARE_ALL_CORES (-3)
#define THREADS_MAX 1024
#if defined(__x86_64__)
#define ARCHITECTURE "x86_64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#else
#error "networks run on x86-64 and 64-bit Arm"
#endif

static _Thread_local char message[MESSAGE_MAX];

const char *as_message(void) { return message; }

static int failed(const char *format, ...) {
    va_list words;
    va_start(words, format);
    vsnprintf(message, sizeof message, format, words);
    va_end(words);
    return -1;
}

/* ---- TVM's C interface ---- */

enum { TYPE_NONE = 0, TYPE_INT = 1, TYPE_BOOL = 2, TYPE_TEXT = 8, TYPE_OBJECT = 64, TYPE_TENSOR = 70, TYPE_ARRAY = 71 };

typedef struct {
    int32_t type;
    uint32_t padding;
    union {
        int64_t number;
        const void *pointer;
        void *object;
    } as;
} value;

typedef struct {
    const char *data;
    size_t size;
} characters;

typedef struct {
    void *data;
    int32_t device, device_number, dimensions;
    uint8_t kind, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

/* The header of all objects. */
typedef struct {
    uint64_t references;
    int32_t type;
    uint32_t padding;
    void (*deleter)(void *, int);
} object;

/* A tensor in memory of this library. TVM counts references to it, and never reaches zero. */
typedef struct {
    object header;
    dl_tensor tensor;
} tensor_object;

extern int TVMFFIFunctionGetGlobal(const characters *name, void **function);
extern int TVMFFIFunctionCall(void *function, const value *arguments, int32_t count, value *result);
extern int TVMFFIObjectDecRef(void *object);
extern void TVMFFIErrorMoveFromRaised(void **error);

static void release(void *held) {
    if (held != NULL) {
        TVMFFIObjectDecRef(held);
    }
}

/* Takes TVM's last error as this library's. */
static int tvm_failed(const char *doing) {
    void *error = NULL;
    TVMFFIErrorMoveFromRaised(&error);
    if (error == NULL) {
        return failed("%s: TVM has failed without a word", doing);
    }
    const characters *said = (const characters *)((const char *)error + sizeof(object));
    failed("%s: %.*s: %.*s", doing, (int)said[0].size, said[0].data, (int)(said[1].size < 600 ? said[1].size : 600),
           said[1].data);
    release(error);
    return -1;
}

static value text(const char *content) {
    return (value){.type = TYPE_TEXT, .as.pointer = content};
}

static value number(int64_t content) {
    return (value){.type = TYPE_INT, .as.number = content};
}

static value held(void *content) {
    return (value){.type = ((object *)content)->type, .as.object = content};
}

/* Calls one of TVM's registered functions; the object that it returns is the caller's. */
static int call_global(const char *name, const value *arguments, int32_t count, value *result) {
    characters wanted = {name, strlen(name)};
    void *function = NULL;
    if (TVMFFIFunctionGetGlobal(&wanted, &function) != 0 || function == NULL) {
        return failed("TVM's runtime has no function %s: its libraries are of another version", name);
    }
    *result = (value){.type = TYPE_NONE};
    int wrong = TVMFFIFunctionCall(function, arguments, count, result) != 0 ? tvm_failed(name) : 0;
    release(function);
    return wrong;
}

static int method_of(void *module, const char *name, void **function) {
    value arguments[] = {held(module), text(name), {.type = TYPE_BOOL, .as.number = 0}}, result;
    if (call_global("ffi.ModuleGetFunction", arguments, 3, &result) != 0) {
        return -1;
    }
    if (result.type < TYPE_OBJECT) {
        return failed("the library holds no network: it has no function %s", name);
    }
    *function = result.as.object;
    return 0;
}

/* ---- JSON: the manifest is checked by its checksum, so that other texts need not be found out ---- */

static const char *skip_spaces(const char *at) {
    while (*at == ' ' || *at == '\n' || *at == '\t' || *at == '\r') {
        at++;
    }
    return at;
}

static const char *skip_string(const char *at) {
    for (at++; *at != '\0' && *at != '"'; at++) {
        if (*at == '\\' && at[1] != '\0') {
            at++;
        }
    }
    return *at == '"' ? at + 1 : at;
}

/* The place behind a value. */
static const char *skip_value(const char *at) {
    int depth = 0;
    at = skip_spaces(at);
    do {
        if (*at == '"') {
            at = skip_string(at);
            continue;
        }
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        at++;
    } while (*at != '\0' && (depth > 0 || (*at != ',' && *at != '}' && *at != ']')));
    return at;
}

/* The value of a key of an object; NULL if there is none. */
static const char *get(const char *json, const char *key) {
    size_t length = strlen(key);
    if (json == NULL || *(json = skip_spaces(json)) != '{') {
        return NULL;
    }
    for (json = skip_spaces(json + 1); *json == '"'; json = skip_spaces(json)) {
        const char *name = json + 1;
        json = skip_spaces(skip_string(json));
        if (*json != ':') {
            return NULL;
        }
        json = skip_spaces(json + 1);
        if (strncmp(name, key, length) == 0 && name[length] == '"') {
            return json;
        }
        json = skip_spaces(skip_value(json));
        if (*json == ',') {
            json = json + 1;
        }
    }
    return NULL;
}

/* An item of an array: the first one for a NULL, or the next one; NULL at its end. */
static const char *next(const char *array, const char *item) {
    if (array == NULL || *(array = skip_spaces(array)) != '[') {
        return NULL;
    }
    item = skip_spaces(item == NULL ? array + 1 : skip_value(item));
    if (*item == ',') {
        item = skip_spaces(item + 1);
    }
    return *item == ']' || *item == '\0' ? NULL : item;
}

static size_t length_of(const char *array) {
    size_t count = 0;
    for (const char *item = next(array, NULL); item != NULL; item = next(array, item)) {
        count++;
    }
    return count;
}

static uint64_t number_of(const char *json) { return json == NULL ? 0 : strtoull(json, NULL, 10); }

/* A copy of a string, whose escapes stay but for the character behind a backslash; NULL for another value. */
static char *string_of(const char *json) {
    if (json == NULL || *json != '"') {
        return NULL;
    }
    const char *end = skip_string(json);
    char *copy = malloc((size_t)(end - json)), *to = copy;
    if (copy == NULL) {
        return NULL;
    }
    for (const char *from = json + 1; from < end - 1; from++) {
        if (*from == '\\') {
            from++;
        }
        *to++ = *from;
    }
    *to = '\0';
    return copy;
}

/* ---- The network ---- */

typedef struct {
    as_tensor shown;
    uint8_t kind, bits; /* DLPack's */
} described;

struct as_network {
    char *name, *path;
    int cores;
    size_t input_count, output_count, weight_count;
    described *inputs, *outputs;
    size_t part_count;
    struct {
        char *content;
        size_t bytes;
    } *parts; /* memory of all weights */
    tensor_object *weight_tensors;
    int64_t *weight_sizes; /* their shapes and strides */
    void *module, *load;   /* TVM's */
};

struct as_session {
    as_network *network;
    int threads;
    void *machine, *run;
    value *arguments;
    tensor_object *tensors;
    char **memory; /* of the inputs */
    int64_t *sizes;
};

static const struct {
    const char *name;
    uint8_t kind, bits;
} types[] = {
    {"float32", 2, 32}, {"float64", 2, 64}, {"float16", 2, 16}, {"bfloat16", 4, 16}, {"bool", 6, 8},
    {"int8", 0, 8},     {"int16", 0, 16},   {"int32", 0, 32},   {"int64", 0, 64},    {"uint8", 1, 8},
    {"uint16", 1, 16},  {"uint32", 1, 32},  {"uint64", 1, 64},
};

static int describe(const char *json, described *tensor) {
    const char *shape = get(json, "shape");
    tensor->shown.name = string_of(get(json, "name"));
    tensor->shown.type = string_of(get(json, "dtype"));
    tensor->shown.dimensions = (int)length_of(shape);
    int64_t *sizes = calloc((size_t)tensor->shown.dimensions + 1, sizeof *sizes);
    if (tensor->shown.type == NULL || sizes == NULL) {
        free(sizes);
        return failed("a tensor of the network has no type, or memory is lacking");
    }
    tensor->shown.shape = sizes;
    int64_t count = 1;
    for (const char *item = next(shape, NULL); item != NULL; item = next(shape, item)) {
        *sizes = (int64_t)number_of(item);
        count *= *sizes++;
    }
    for (size_t n = 0; n < sizeof types / sizeof *types; n++) {
        if (strcmp(types[n].name, tensor->shown.type) == 0) {
            tensor->kind = types[n].kind;
            tensor->bits = types[n].bits;
            tensor->shown.bytes = (size_t)count * (types[n].bits / 8);
            return 0;
        }
    }
    return failed("a tensor of the network has the type %s, which is unknown here", tensor->shown.type);
}

static void forget(described *tensors, size_t count) {
    for (size_t n = 0; tensors != NULL && n < count; n++) {
        free((char *)tensors[n].shown.name);
        free((char *)tensors[n].shown.type);
        free((int64_t *)tensors[n].shown.shape);
    }
    free(tensors);
}

/* Fills a tensor of TVM. sizes: room for twice its dimensions. */
static void fill(tensor_object *tensor, const described *like, void *data, int64_t *sizes) {
    int count = like->shown.dimensions;
    int64_t step = 1;
    for (int n = count - 1; n >= 0; n--) {
        sizes[n] = like->shown.shape[n];
        sizes[count + n] = step;
        step *= sizes[n];
    }
    tensor->header = (object){.references = (uint64_t)1 << 32 | 1, .type = TYPE_TENSOR};
    tensor->tensor = (dl_tensor){
        .data = data, .device = 1, .dimensions = count, .kind = like->kind, .bits = like->bits, .lanes = 1,
        .shape = sizes, .strides = sizes + count,
    };
}

/* CRC-32 of ZIP archives, eight bytes at a time ("slicing by 8", Kounavis and Berry 2005). */
static uint32_t crc_table[8][256];
static pthread_once_t crc_made = PTHREAD_ONCE_INIT;

static void make_crc_table(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t sum = n;
        for (int bit = 0; bit < 8; bit++) {
            sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320u : 0);
        }
        crc_table[0][n] = sum;
    }
    for (int row = 1; row < 8; row++) {
        for (int n = 0; n < 256; n++) {
            uint32_t sum = crc_table[row - 1][n];
            crc_table[row][n] = sum >> 8 ^ crc_table[0][sum & 0xFF];
        }
    }
}

static uint32_t crc32_of(const char *content, size_t size) {
    const unsigned char *at = (const unsigned char *)content;
    uint32_t sum = ~0u;
    pthread_once(&crc_made, make_crc_table);
    for (; size >= 8; size -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        word ^= sum;
        sum = 0;
        for (int row = 7; row >= 0; row--, word >>= 8) {
            sum ^= crc_table[row][word & 0xFF];
        }
    }
    while (size-- > 0) {
        sum = sum >> 8 ^ crc_table[0][(sum ^ *at++) & 0xFF];
    }
    return ~sum;
}

static int read_all(int file, const char *path, char *to, size_t size, off_t at) {
    while (size > 0) {
        ssize_t count = pread(file, to, size, at);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return failed(count < 0 ? "%s cannot be read: %s" : "%s is cut off: its end is missing. Copy it again",
                          path, strerror(errno));
        }
        to += count, at += count, size -= (size_t)count;
    }
    return 0;
}

/* Reads a part of the file, and compares its checksum. Memory of its own, which munmap frees. */
static char *part_of(int file, const char *path, const char *part, size_t *size) {
    *size = number_of(get(part, "bytes"));
    char *content = mmap(NULL, *size ? *size : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (content == MAP_FAILED) {
        failed("there is no memory for %zu bytes of %s", *size, path);
        return NULL;
    }
    madvise(content, *size, MADV_HUGEPAGE);
    if (read_all(file, path, content, *size, (off_t)number_of(get(part, "at"))) != 0) {
        munmap(content, *size);
        return NULL;
    }
    if (crc32_of(content, *size) != (uint32_t)number_of(get(part, "crc32"))) {
        failed("%s is damaged: its contents are not what was written. Copy it again", path);
        munmap(content, *size);
        return NULL;
    }
    return content;
}

/* The text of the manifest, which is the archive's first entry. */
static char *manifest_of(int file, const char *path) {
    unsigned char head[30];
    const char *wanted = "manifest.json";
    char name[13] = "";
    if (read_all(file, path, (char *)head, sizeof head, 0) != 0) {
        return NULL;
    }
    uint32_t checksum, size;
    uint16_t name_size, extra_size;
    memcpy(&checksum, head + 14, 4);
    memcpy(&size, head + 22, 4);
    memcpy(&name_size, head + 26, 2);
    memcpy(&extra_size, head + 28, 2);
    if (memcmp(head, "PK\3\4", 4) != 0 || name_size != sizeof name ||
        read_all(file, path, name, sizeof name, sizeof head) != 0 || memcmp(name, wanted, sizeof name) != 0) {
        failed("%s is no network (.asn). Make one with: autosched export NAME-tuned", path);
        return NULL;
    }
    char *json = malloc((size_t)size + 1);
    if (json == NULL || read_all(file, path, json, size, (off_t)(sizeof head + name_size + extra_size)) != 0) {
        free(json);
        return NULL;
    }
    json[size] = '\0';
    if (crc32_of(json, size) != checksum) {
        failed("%s is damaged: its manifest.json is not what was written. Copy it again", path);
        free(json);
        return NULL;
    }
    return json;
}

/* Refuses a network whose instructions this CPU lacks, or its hypervisor withholds. */
static int check_cpu(const char *variant, const char *path) {
    const char *needs = get(variant, "kernel_flags"), *words = get(needs, "auxiliary");
    const unsigned long entries[] = {AT_HWCAP, AT_HWCAP2};
    size_t entry = 0;
    for (const char *word = next(words, NULL); word != NULL && entry < 2; word = next(words, word), entry++) {
        if (number_of(word) & ~getauxval(entries[entry])) {
            return failed("%s was compiled for a CPU with features that this one lacks. Tune the model for it", path);
        }
    }
    const char *flags = get(needs, "cpuinfo");
    if (flags == NULL || next(flags, NULL) == NULL) {
        return 0;
    }
    FILE *file = fopen("/proc/cpuinfo", "r");
    char *line = NULL;
    size_t room = 0;
    int found = 0;
    while (file != NULL && !found && getline(&line, &room, file) > 0) {
        found = strncmp(line, "flags", 5) == 0;
    }
    if (file != NULL) {
        fclose(file);
    }
    int wrong = 0;
    for (const char *flag = next(flags, NULL); found && !wrong && flag != NULL; flag = next(flags, flag)) {
        char *name = string_of(flag), *at = line;
        size_t length = name == NULL ? 0 : strlen(name);
        int has = length == 0;
        while (!has && (at = strstr(at, name)) != NULL) {
            has = at[-1] == ' ' && (at[length] == ' ' || at[length] == '\n' || at[length] == '\0');
            at += length;
        }
        if (!has) {
            wrong = failed("%s was compiled for a CPU with %s, which this machine's CPU lacks or its hypervisor"
                           " withholds. Tune the model on this machine", path, name);
        }
#if defined(__x86_64__)
        if (has && strncmp(flag, "\"amx", 4) == 0 && syscall(SYS_arch_prctl, 0x1023, 18) != 0) {
            wrong = failed("%s uses AMX, which this system does not allow", path);
        }
#endif
        free(name);
    }
    free(line);
    return wrong;
}

/* Loads the library from a file in memory, under a path that the loader does not know yet: numbers of files are used
   again. In the path, a count is written with "/" and "./", which name the same folder. */
static int load_library(as_network *network, const char *content, size_t size) {
    static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
    static unsigned count = 0;
    int file = memfd_create("network.so", MFD_CLOEXEC | EXECUTABLE);
    if (file < 0) {
        file = memfd_create("network.so", MFD_CLOEXEC);
    }
    if (file < 0) {
        return failed("%s cannot be loaded: this system has no files in memory (%s)", network->path, strerror(errno));
    }
    for (size_t done = 0; done < size;) {
        ssize_t more = write(file, content + done, size - done);
        if (more < 0 && errno != EINTR) {
            failed("%s cannot be loaded: %s", network->path, strerror(errno));
            close(file);
            return -1;
        }
        done += more > 0 ? (size_t)more : 0;
    }
    pthread_mutex_lock(&loading);
    char path[PATH_BYTES] = "/proc/self/fd/";
    for (unsigned rest = ++count; rest > 0; rest >>= 1) {
        strcat(path, rest & 1 ? "./" : "/");
    }
    snprintf(path + strlen(path), sizeof path - strlen(path), "%d", file);
    value arguments[] = {text(path), text("so")}, result;
    int wrong = call_global("ffi.Module.load_from_file.so", arguments, 2, &result);
    pthread_mutex_unlock(&loading);
    close(file);
    if (wrong) {
        return -1;
    }
    network->module = result.as.object;
    return method_of(network->module, "vm_load_executable", &network->load);
}

static int load_weights(as_network *network, int file, const char *weights) {
    const char *parts = get(weights, "parts"), *tensors = get(weights, "tensors");
    size_t sizes = 0, number = 0;
    for (const char *item = next(tensors, NULL); item != NULL; item = next(tensors, item)) {
        network->weight_count++;
        sizes += 2 * length_of(get(item, "shape"));
    }
    network->parts = calloc(length_of(parts) + 1, sizeof *network->parts);
    network->weight_tensors = calloc(network->weight_count + 1, sizeof *network->weight_tensors);
    network->weight_sizes = calloc(sizes + 1, sizeof *network->weight_sizes);
    if (network->parts == NULL || network->weight_tensors == NULL || network->weight_sizes == NULL) {
        return failed("there is no memory for the weights of %s", network->path);
    }
    for (const char *part = next(parts, NULL); part != NULL; part = next(parts, part)) {
        size_t bytes = 0;
        char *content = part_of(file, network->path, part, &bytes);
        if (content == NULL) {
            return -1;
        }
        network->parts[network->part_count].content = content;
        network->parts[network->part_count++].bytes = bytes;
    }
    int64_t *room = network->weight_sizes;
    for (const char *item = next(tensors, NULL); item != NULL; item = next(tensors, item)) {
        described like = {0};
        size_t at = number_of(get(item, "at")), part = number_of(get(item, "part"));
        int wrong = describe(item, &like);
        if (!wrong && (part >= network->part_count || at + like.shown.bytes > network->parts[part].bytes)) {
            wrong = failed("%s is damaged: a weight lies outside of its weights", network->path);
        }
        if (!wrong) {
            fill(&network->weight_tensors[number++], &like, network->parts[part].content + at, room);
            room += 2 * like.shown.dimensions;
        }
        free((char *)like.shown.name), free((char *)like.shown.type), free((int64_t *)like.shown.shape);
        if (wrong) {
            return -1;
        }
    }
    return 0;
}

static int describe_all(const char *array, described **tensors, size_t *count) {
    *count = length_of(array);
    *tensors = calloc(*count + 1, sizeof **tensors);
    if (*tensors == NULL) {
        return failed("there is no memory");
    }
    size_t number = 0;
    for (const char *item = next(array, NULL); item != NULL; item = next(array, item)) {
        if (describe(item, &(*tensors)[number++]) != 0) {
            return -1;
        }
    }
    return 0;
}

static int same_target(const char *one, const char *other) {
    const char *mine = get(one, "target"), *theirs = get(other, "target");
    size_t length = mine == NULL ? 0 : (size_t)(skip_value(mine) - mine);
    return theirs != NULL && (size_t)(skip_value(theirs) - theirs) == length && memcmp(mine, theirs, length) == 0;
}

/* A variant for the first target that this CPU can run; NULL and a message if there is none. */
static const char *variant_of(const char *json, const char *path, size_t number) {
    const char *first = NULL;
    const char *variants = get(json, "variants");
    uint64_t format = number_of(get(json, "format"));
    if (format > FORMAT) {
        failed("%s has format %d, and this library reads %d: export it again", path, (int)format, FORMAT);
        return NULL;
    }
    failed("%s holds no network for " ARCHITECTURE ". Tune the model for it", path);
    for (const char *one = next(variants, NULL); one != NULL; one = next(variants, one)) {
        const char *kind = get(one, "architecture");
        if (kind != NULL && strncmp(kind, "\"" ARCHITECTURE "\"", sizeof ARCHITECTURE + 1) == 0 &&
            (first == NULL ? check_cpu(one, path) == 0 : same_target(first, one))) {
            first = first == NULL ? one : first;
            if (number-- == 0) {
                return one;
            }
        }
    }
    if (first != NULL) {
        failed("%s has no more networks for other shapes", path);
    }
    return NULL;
}

static int open_variant(as_network *network, int file, const char *json, size_t number) {
    const char *variant = variant_of(json, network->path, number);
    if (variant == NULL) {
        return -1;
    }
    network->name = string_of(get(json, "name"));
    network->cores = (int)number_of(get(get(variant, "target"), "num-cores"));
    network->cores = network->cores > 0 ? network->cores : 1;
    if (describe_all(get(variant, "inputs"), &network->inputs, &network->input_count) != 0 ||
        describe_all(get(variant, "outputs"), &network->outputs, &network->output_count) != 0) {
        return -1;
    }
    size_t size = 0;
    char *library = part_of(file, network->path, get(variant, "library"), &size);
    if (library == NULL) {
        return -1;
    }
    int wrong = load_library(network, library, size);
    munmap(library, size);
    return wrong ? -1 : load_weights(network, file, get(variant, "weights"));
}

int as_network_open(const char *path, as_network **network) { return as_network_open_shape(path, 0, network); }

int as_network_open_shape(const char *path, size_t number, as_network **network) {
    *network = NULL;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return failed("%s cannot be opened: %s", path, strerror(errno));
    }
    as_network *made = calloc(1, sizeof *made);
    char *json = made == NULL ? NULL : manifest_of(file, path);
    int wrong = json == NULL ? -1 : 0;
    if (made == NULL) {
        wrong = failed("there is no memory");
    }
    if (!wrong) {
        made->path = strdup(path);
        wrong = made->path == NULL ? failed("there is no memory") : open_variant(made, file, json, number);
    }
    free(json);
    close(file);
    if (wrong) {
        as_network_close(made);
        return -1;
    }
    *network = made;
    return 0;
}

void as_network_close(as_network *network) {
    if (network == NULL) {
        return;
    }
    release(network->load);
    release(network->module);
    forget(network->inputs, network->input_count);
    forget(network->outputs, network->output_count);
    for (size_t n = 0; n < network->part_count; n++) {
        munmap(network->parts[n].content, network->parts[n].bytes);
    }
    free(network->parts);
    free(network->weight_tensors);
    free(network->weight_sizes);
    free(network->name);
    free(network->path);
    free(network);
}

const char *as_name(const as_network *network) { return network->name; }
int as_cores(const as_network *network) { return network->cores; }
size_t as_input_count(const as_network *network) { return network->input_count; }
size_t as_output_count(const as_network *network) { return network->output_count; }

const as_tensor *as_input(const as_network *network, size_t number) {
    return number < network->input_count ? &network->inputs[number].shown : NULL;
}

const as_tensor *as_output(const as_network *network, size_t number) {
    return number < network->output_count ? &network->outputs[number].shown : NULL;
}

/* ---- Sessions ---- */

static int usable_cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Gives the kernels of the calling thread a number of threads. */
static int use_threads(int count) {
    static _Thread_local int used = 0;
    if (used == count) {
        return 0;
    }
    setenv("TVM_BIND_THREADS", "0", 0); /* otherwise TVM moves this thread to cores that it must not use */
    value names[THREADS_MAX], cores, nothing;
    for (int n = 0; n < count; n++) {
        names[n] = text("0"); /* the length of the list counts alone */
    }
    if (call_global("ffi.Array", names, count, &cores) != 0) {
        return -1;
    }
    value arguments[] = {number(SHARE_ALL_CORES), number(count), cores};
    int wrong = call_global("runtime.config_threadpool", arguments, 3, &nothing);
    release(cores.as.object);
    used = wrong ? used : count;
    return wrong;
}

int as_session_new(as_network *network, int threads, as_session **session) {
    *session = NULL;
    if (threads < 0 || threads > THREADS_MAX) {
        return failed("threads is %d: at least 0 is needed, at most %d", threads, THREADS_MAX);
    }
    setenv("TVM_THREAD_POOL_SPIN_COUNT", "2000", 0); /* workers sleep a millisecond after an inference */
    as_session *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return failed("there is no memory");
    }
    int usable = usable_cores();
    made->network = network;
    made->threads = threads > 0 ? threads : network->cores < usable ? network->cores : usable;
    size_t inputs = network->input_count, sizes = 0;
    for (size_t n = 0; n < inputs; n++) {
        sizes += 2 * (size_t)network->inputs[n].shown.dimensions;
    }
    made->arguments = calloc(inputs + network->weight_count + 1, sizeof *made->arguments);
    made->tensors = calloc(inputs + 1, sizeof *made->tensors);
    made->memory = calloc(inputs + 1, sizeof *made->memory);
    made->sizes = calloc(sizes + 1, sizeof *made->sizes);
    int wrong = made->arguments == NULL || made->tensors == NULL || made->memory == NULL || made->sizes == NULL;
    int64_t *room = made->sizes;
    for (size_t n = 0; !wrong && n < inputs; n++) {
        size_t bytes = network->inputs[n].shown.bytes;
        made->memory[n] = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
        wrong = made->memory[n] == NULL;
        fill(&made->tensors[n], &network->inputs[n], made->memory[n], room);
        room += 2 * network->inputs[n].shown.dimensions;
        made->arguments[n] = held(&made->tensors[n]);
    }
    for (size_t n = 0; !wrong && n < network->weight_count; n++) {
        made->arguments[inputs + n] = held(&network->weight_tensors[n]);
    }
    if (wrong) {
        failed("there is no memory for a session of %s", network->name);
    } else {
        value result, start[] = {number(1), number(0), number(2)}; /* the CPU, its number, memory kept for the next */
        result = (value){.type = TYPE_NONE};
        wrong = TVMFFIFunctionCall(network->load, NULL, 0, &result) != 0 ? tvm_failed("vm_load_executable") : 0;
        made->machine = wrong ? NULL : result.as.object;
        void *initialise = NULL;
        wrong = wrong || method_of(made->machine, "vm_initialization", &initialise) != 0;
        result = (value){.type = TYPE_NONE};
        if (!wrong && TVMFFIFunctionCall(initialise, start, 3, &result) != 0) {
            wrong = tvm_failed("vm_initialization");
        }
        release(initialise);
        wrong = wrong || method_of(made->machine, "main", &made->run) != 0;
    }
    if (wrong) {
        as_session_free(made);
        return -1;
    }
    *session = made;
    return 0;
}

void as_session_free(as_session *session) {
    if (session == NULL) {
        return;
    }
    release(session->run);
    release(session->machine);
    for (size_t n = 0; session->memory != NULL && n < session->network->input_count; n++) {
        free(session->memory[n]);
    }
    free(session->memory);
    free(session->arguments);
    free(session->tensors);
    free(session->sizes);
    free(session);
}

static int check_arrays(const described *wanted, size_t count, const as_array *given, size_t given_count,
                        const char *what) {
    if (given_count != count) {
        return failed("%zu %ss given, %zu wanted", given_count, what, count);
    }
    for (size_t n = 0; n < count; n++) {
        if (given[n].data == NULL || given[n].bytes != wanted[n].shown.bytes) {
            return failed("%s %zu (%s, %s) has %zu bytes, and %zu were given", what, n, wanted[n].shown.name,
                          wanted[n].shown.type, wanted[n].shown.bytes, given[n].data == NULL ? 0 : given[n].bytes);
        }
    }
    return 0;
}

/* Copies an output out of TVM's tensor. */
static int take_output(const described *wanted, const value *found, const as_array *output) {
    if (found->type != TYPE_TENSOR) {
        return failed("the network returns a value that is no tensor");
    }
    const dl_tensor *tensor = &((const tensor_object *)found->as.pointer)->tensor;
    int64_t count = 1;
    for (int n = 0; n < tensor->dimensions; n++) {
        count *= tensor->shape[n];
    }
    if ((size_t)count * (tensor->bits / 8) != wanted->shown.bytes) {
        return failed("output %s has another size than the network says", wanted->shown.name);
    }
    memcpy(output->data, (const char *)tensor->data + tensor->byte_offset, wanted->shown.bytes);
    return 0;
}

int as_run(as_session *session, const as_array *inputs, size_t input_count, const as_array *outputs,
           size_t output_count) {
    const as_network *network = session->network;
    if (check_arrays(network->inputs, network->input_count, inputs, input_count, "input") != 0 ||
        check_arrays(network->outputs, network->output_count, outputs, output_count, "output") != 0 ||
        use_threads(session->threads) != 0) {
        return -1;
    }
    for (size_t n = 0; n < input_count; n++) {
        memcpy(session->memory[n], inputs[n].data, inputs[n].bytes);
    }
    value result = {.type = TYPE_NONE};
    if (TVMFFIFunctionCall(session->run, session->arguments, (int32_t)(input_count + network->weight_count), &result)) {
        return tvm_failed(network->name);
    }
    const value *found = &result;
    size_t count = 1;
    if (result.type == TYPE_ARRAY) { /* behind the header: the address of its values, and their number */
        const char *array = result.as.pointer;
        memcpy(&found, array + sizeof(object), sizeof found);
        memcpy(&count, array + sizeof(object) + sizeof found, sizeof count);
    }
    int wrong = count == output_count ? 0 : failed("the network returns %zu values, not %zu", count, output_count);
    for (size_t n = 0; !wrong && n < output_count; n++) {
        wrong = take_output(&network->outputs[n], &found[n], &outputs[n]);
    }
    release(result.type >= TYPE_OBJECT ? result.as.object : NULL);
    return wrong;
}
