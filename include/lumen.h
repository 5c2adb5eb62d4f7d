/* Lumen's C interface, for C and for any language that can call C.
 *
 * Every function that can fail returns a status: 0, or the exit code that the program `lumen` would have ended with.
 * lumen_last_error() returns the message and a hint. No exception and no signal leaves this library.
 *
 * Handles are opaque. Several threads may use one handle: calls on the same handle wait for each other. A null handle,
 * or a null pointer where one is needed, is an error (LUMEN_USAGE), not a crash. The object that a handle was made from
 * may be freed before the handle.
 *
 * Options are a JSON object, or null for the defaults; an unknown option is an error. Text is UTF-8 and is passed with
 * its length; paths, names and options are zero-terminated strings.
 *
 * Memory that a function returns (char**, int32_t**, float**, ..) is freed by the caller with lumen_free.
 *
 * Functions are added and never removed or changed: LUMEN_API_VERSION grows with each addition. */
#ifndef LUMEN_H
#define LUMEN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LUMEN_API_VERSION 2

#if defined(__GNUC__)
#define LUMEN_API __attribute__((visibility("default")))
#else
#define LUMEN_API
#endif

enum {
  LUMEN_OK = 0,
  LUMEN_DATA = 1,     /* bad data or files */
  LUMEN_USAGE = 2,    /* wrong arguments */
  LUMEN_HARDWARE = 3, /* unsupported hardware, or too little memory */
  LUMEN_NUMERIC = 4,  /* numbers are not finite */
  LUMEN_VERIFY = 5,   /* a check failed */
  LUMEN_INTERRUPTED = 130
};

typedef struct lumen_model lumen_model;
typedef struct lumen_function lumen_function;
typedef struct lumen_format lumen_format;
typedef struct lumen_trainer lumen_trainer;
typedef struct lumen_array lumen_array;

/* Receives a piece of the generated text. The piece may be empty: then the call only asks whether to go on. Returns 0
 * to stop. */
typedef int (*lumen_on_text)(void* context, const char* piece, size_t size);

/* ---- The library ---- */

/* LUMEN_API_VERSION of the loaded library, and the version of Lumen ("0.1.0"). */
LUMEN_API int lumen_api_version(void);
LUMEN_API const char* lumen_version(void);

/* The message of this thread's last call that failed, and a hint how to fix it, which may be empty. Both are valid
 * until this thread's next call that fails. `hint` may be null. */
LUMEN_API const char* lumen_last_error(const char** hint);

/* Frees memory that another function returned. Null is allowed. */
LUMEN_API void lumen_free(void* memory);

/* Runs the program `lumen` as its main() does, with its signal handlers, its output and its exit code. */
LUMEN_API int lumen_main(int count, const char* const* arguments);

/* Runs one command of the program inside this process: arguments[0] is the command ("quantize"). The command's standard
 * output is returned in `output`, which may be null. SIGINT asks the command to stop, as in the program, and the
 * previous handler is called, too; the call then returns LUMEN_INTERRUPTED. Commands run one after another. */
LUMEN_API int lumen_command(int count, const char* const* arguments, char** output, size_t* size);

/* ---- Models ---- */

/* Opens a GGUF file, a Hugging Face folder, a checkpoint, or "hf:user/repo" from the local cache. Options:
 *   "device"  "cpu" (default), "cuda[:N]", "hip[:N]", "auto"       "threads"  0: all
 *   "cache"   folder of compiled kernels, "off": memory only       "tune"     true
 *   "formats" [STRING, ..]: sources in Lumen's language that define further number formats
 *   "mmap"    true; false copies the weights into memory, in huge pages, which processors read faster
 *   "adapters" [{"path": PATH, "scale": 1}, ..] */
LUMEN_API int lumen_model_open(const char* path, const char* options, lumen_model** model);
LUMEN_API void lumen_model_close(lumen_model* model);

/* A JSON object: name, family, parameters, vocabulary, context, bytes, has_tokenizer, chat_template, .. */
LUMEN_API int lumen_model_info(lumen_model* model, char** json);

/* `options`: "special" (false): add the tokens that begin and end a sequence; "control" (false): parse the names of
 * control tokens in the text as those tokens. */
LUMEN_API int lumen_tokenize(lumen_model* model, const char* text, size_t size, const char* options, int32_t** tokens,
                             size_t* count);
LUMEN_API int lumen_detokenize(lumen_model* model, const int32_t* tokens, size_t count, char** text, size_t* size);

/* Generates a continuation of a prompt. `on_text` receives the generated text piece by piece, and may be null. `json`
 * receives an object: text, reason ("end", "stop", "grammar", "limit", "context"), prompt_tokens, tokens, seconds.
 * Returns LUMEN_INTERRUPTED when `on_text` stops it. Options, with the defaults of `lumen run`: "max_tokens" 128,
 * "temperature", "top_k", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc_probability", "xtc_threshold",
 * "repeat_penalty", "presence_penalty", "frequency_penalty", "repeat_last", "seed" (-1: another each time), "stop"
 * [STRING, ..], "grammar" (GBNF), "json_schema" (an object), "logit_bias" {ID: NUMBER}, "ignore_end", "context",
 * "exact". */
LUMEN_API int lumen_generate(lumen_model* model, const char* prompt, size_t size, const char* options,
                             lumen_on_text on_text, void* context, char** json);

/* Generates the answer to a conversation: `messages` is a JSON list, [{"role": "user", "content": STRING}, ..]. Options
 * as for lumen_generate, and
 *   "template" (a name or a file; default: the model's own), "template_values" (an object). */
LUMEN_API int lumen_chat(lumen_model* model, const char* messages, const char* options, lumen_on_text on_text,
                         void* context, char** json);

/* The raw logits for the token after each of the given tokens, [count, vocabulary], or with `last` only after the last
 * one, [vocabulary]. Options: "context", "exact". */
LUMEN_API int lumen_logits(lumen_model* model, const int32_t* tokens, size_t count, int last, const char* options,
                           float** logits, size_t* vocabulary);

/* The same logits, bit for bit, on the model's device; see "Arrays on a device" below. */
LUMEN_API int lumen_logits_array(lumen_model* model, const int32_t* tokens, size_t count, int last, const char* options,
                                 lumen_array** logits);

/* Embedding vectors of `count` inputs, [count, width]. Options: "pooling" ("mean", "cls", "last"; default: the model's
 * own), "normalize" (2, as `lumen embed`), "exact". */
LUMEN_API int lumen_embed(lumen_model* model, const char* const* inputs, const size_t* sizes, size_t count,
                          const char* options, float** vectors, size_t* width);

/* Perplexity of the model on a text, as `lumen perplexity` measures it. Options: "length" 512, "batch", "windows" (0:
 * all), "full", "bos" ("front", "windows", "none"), "exact". `json`: perplexity, error, nats, tokens, windows.
 * `on_text` may be null. */
LUMEN_API int lumen_perplexity(lumen_model* model, const char* text, size_t size, const char* options,
                               lumen_on_text on_text, void* context, char** json);

/* ---- Arrays on a device ---- */

/* Kinds of devices, with DLPack's numbers. */
enum { LUMEN_CPU = 1, LUMEN_CUDA = 2, LUMEN_ROCM = 10 };

/* A device. `stream` is a CUstream or hipStream_t that Lumen owns, and null on the processor. Arguments are read in the
 * order of this stream: a caller that writes them on another stream makes this one wait for it. The stream lives as
 * long as the handle. */
typedef struct lumen_device {
  int32_t kind;
  int32_t id;
  void* stream;
} lumen_device;

LUMEN_API int lumen_model_device(lumen_model* model, lumen_device* device);

/* Numbers in 32-bit float, contiguous in row-major order, in memory of the device (of this process, where the device is
 * the processor). They are complete when the array is returned, and may be read on any stream. Each of the pointers may
 * be null; `shape` and `data` are valid as long as the array, which may outlive the handle that it came from. */
LUMEN_API int lumen_array_info(lumen_array* array, lumen_device* device, int* rank, const int64_t** shape,
                               float** data);
/* Copies the numbers into memory of this process; `count` is the number of elements and must be all of them. */
LUMEN_API int lumen_array_read(lumen_array* array, float* to, size_t count);
/* A copy of the array on the same device. */
LUMEN_API int lumen_array_copy(lumen_array* array, lumen_array** copy);
/* Frees the memory once all work that this process has queued on the device so far is done. Null is allowed. */
LUMEN_API void lumen_array_free(lumen_array* array);

/* ---- Functions of Lumen's language ---- */

/* Numbers in memory of this process, contiguous in row-major order. */
typedef enum { LUMEN_F32 = 0, LUMEN_I32 = 1 } lumen_dtype;
typedef struct lumen_tensor {
  lumen_dtype dtype;
  int rank;
  const int64_t* shape; /* null where rank is 0 */
  const void* data;
} lumen_tensor;

/* A result. The caller owns its memory: free `data` and `shape` with lumen_free each. */
typedef struct lumen_result {
  int rank;
  int64_t* shape;
  float* data;
} lumen_result;

/* Compiles a function from source text; `name` may be null, which means the last function of the text. Machine code is
 * generated for each set of shapes that the function is called with. Options: "device", "threads", "cache", "tune" as
 * above, and "exact". */
LUMEN_API int lumen_function_open(const char* text, const char* name, const char* options, lumen_function** function);
LUMEN_API void lumen_function_close(lumen_function* function);
/* A JSON object: name, inputs [{"name", "type"}, ..], results [TYPE, ..]. */
LUMEN_API int lumen_function_info(lumen_function* function, char** json);
/* `results` has room for as many results as the function has. When the call fails it returns none of them. */
LUMEN_API int lumen_function_call(lumen_function* function, const lumen_tensor* inputs, size_t count,
                                  lumen_result* results, size_t result_count);
/* The gradients of sum(results * cotangents) with respect to the inputs whose indices `wanted` lists, in that order. */
LUMEN_API int lumen_function_gradient(lumen_function* function, const lumen_tensor* inputs, size_t count,
                                      const lumen_tensor* cotangents, size_t result_count, const size_t* wanted,
                                      size_t wanted_count, lumen_result* gradients);

/* The device that a function runs on. */
LUMEN_API int lumen_function_device(lumen_function* function, lumen_device* device);

/* An argument in memory of this process (LUMEN_CPU), or on the function's device, where it is used without a copy
 * through the host. On any other device it is an error. */
typedef struct lumen_argument {
  lumen_tensor tensor;
  int32_t kind;
  int32_t id;
} lumen_argument;

/* The same two calls for arguments in either place, with results on the function's device, each freed by
 * lumen_array_free. */
LUMEN_API int lumen_function_call_arrays(lumen_function* function, const lumen_argument* inputs, size_t count,
                                         lumen_array** results, size_t result_count);
LUMEN_API int lumen_function_gradient_arrays(lumen_function* function, const lumen_argument* inputs, size_t count,
                                             const lumen_argument* cotangents, size_t result_count,
                                             const size_t* wanted, size_t wanted_count, lumen_array** gradients);

/* ---- Number formats ---- */

/* A number format that `text` defines, or, where `text` is null, a built-in one. Options: "device", "threads", "cache".
 */
LUMEN_API int lumen_format_open(const char* text, const char* name, const char* options, lumen_format** format);
LUMEN_API void lumen_format_close(lumen_format* format);
/* A JSON object: name, block, bits (per number, for a matrix of one block per row). */
LUMEN_API int lumen_format_info(lumen_format* format, char** json);
/* Quantizes a matrix of rows * columns numbers to the bytes that files store, and back. */
LUMEN_API int lumen_format_encode(lumen_format* format, const float* numbers, int64_t rows, int64_t columns,
                                  uint8_t** bytes, size_t* size);
LUMEN_API int lumen_format_decode(lumen_format* format, const uint8_t* bytes, size_t size, int64_t rows,
                                  int64_t columns, float** numbers);

/* ---- Training, a step at a time ---- */

/* Starts the run that `lumen train` starts with these arguments (without the word "train"), and stops before the first
 * step. For whole runs use lumen_command. `on_text` is asked every 50 ms whether to go on waiting, and may be null;
 * when it returns 0 the call returns LUMEN_INTERRUPTED, while the work that was started still runs to its end. */
LUMEN_API int lumen_trainer_open(int count, const char* const* arguments, lumen_on_text on_text, void* context,
                                 lumen_trainer** trainer);
/* One optimizer step. `json`: step, loss, norm, rate, tokens, seconds, metrics. */
LUMEN_API int lumen_trainer_step(lumen_trainer* trainer, lumen_on_text on_text, void* context, char** json);
/* Mean loss in nats per token over the first `rows` rows of the validation data; 0: all. */
LUMEN_API int lumen_trainer_evaluate(lumen_trainer* trainer, int64_t rows, lumen_on_text on_text, void* context,
                                     double* loss);
/* Writes a checkpoint into the run's folder and returns its path. */
LUMEN_API int lumen_trainer_save(lumen_trainer* trainer, lumen_on_text on_text, void* context, char** path);
/* Writes a checkpoint and the model's files, as the command does at its end. `json`: output, checkpoint,
 * validation_loss. After this the trainer can only be closed. */
LUMEN_API int lumen_trainer_finish(lumen_trainer* trainer, lumen_on_text on_text, void* context, char** json);
/* Ends the run at its current step; checkpoints that were saved stay. */
LUMEN_API void lumen_trainer_close(lumen_trainer* trainer);

#ifdef __cplusplus
}
#endif

#endif
