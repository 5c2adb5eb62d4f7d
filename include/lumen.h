/* Lumen for programs in C, and in any language that can call C.
 *
 * Every function that can fail returns a status: 0, or the exit code that the program `lumen` would have ended with.
 * What went wrong, and what to do about it, tells lumen_last_error(). No exception and no signal leaves this library.
 *
 * Handles are opaque. A handle may be used by several threads: calls on one handle wait for each other. A null handle
 * or a null pointer where one is needed is an error (LUMEN_USAGE), not a crash. What a handle was made from may be
 * freed before it.
 *
 * Options are an object of JSON, or null for none; an option that is not known is an error. Texts are UTF-8 with their
 * lengths; paths, names and options end with a zero.
 *
 * Memory that is handed over (char**, int32_t**, float**, ..) is freed by lumen_free.
 *
 * Functions are added, and what is there stays: LUMEN_API_VERSION grows with each that is added. */
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
  LUMEN_HARDWARE = 3, /* the machine cannot, or has too little memory */
  LUMEN_NUMERIC = 4,  /* numbers are not finite */
  LUMEN_VERIFY = 5,   /* a check failed */
  LUMEN_INTERRUPTED = 130
};

typedef struct lumen_model lumen_model;
typedef struct lumen_function lumen_function;
typedef struct lumen_format lumen_format;
typedef struct lumen_trainer lumen_trainer;
typedef struct lumen_array lumen_array;

/* Hears a piece of a text, which may be empty: then it is only asked whether to go on. Returns 0 to stop. */
typedef int (*lumen_on_text)(void* context, const char* piece, size_t size);

/* ---- The library ---- */

/* LUMEN_API_VERSION of the library that was found, and the version of Lumen ("0.1.0"). */
LUMEN_API int lumen_api_version(void);
LUMEN_API const char* lumen_version(void);

/* The error of this thread's last call that failed, and a hint what to do, which may be empty; both until its next call
 * that fails. `hint` may be null. */
LUMEN_API const char* lumen_last_error(const char** hint);

/* Frees what was handed over. Null is allowed. */
LUMEN_API void lumen_free(void* memory);

/* The program `lumen` itself: what its main() does, with its signals, its output and its exit code. */
LUMEN_API int lumen_main(int count, const char* const* arguments);

/* A command of the program within this one: arguments[0] is the command ("quantize"). What it would print is handed
 * over as `output`, which may be null. SIGINT asks it to stop, as in the program, and the handler that was there before
 * is called, too; it then returns LUMEN_INTERRUPTED. Commands run one after another. */
LUMEN_API int lumen_command(int count, const char* const* arguments, char** output, size_t* size);

/* ---- Models ---- */

/* Opens a GGUF file, a Hugging Face folder, a checkpoint, or "hf:user/repo" of the local cache. Options:
 *   "device"  "cpu" (default), "cuda[:N]", "hip[:N]", "auto"       "threads"  0: all
 *   "cache"   folder of compiled kernels, "off": memory only       "tune"     true
 *   "formats" [TEXT, ..]: texts of the language with number formats of your own
 *   "mmap"    true; false copies the weights into memory, in huge pages, which processors read faster
 *   "adapters" [{"path": PATH, "scale": 1}, ..] */
LUMEN_API int lumen_model_open(const char* path, const char* options, lumen_model** model);
LUMEN_API void lumen_model_close(lumen_model* model);

/* A JSON object: name, family, parameters, vocabulary, context, bytes, has_tokenizer, chat_template, .. */
LUMEN_API int lumen_model_info(lumen_model* model, char** json);

/* `options`: "special" (false): add the tokens that begin and end a text; "control" (false): names of control tokens in
 * the text are those tokens. */
LUMEN_API int lumen_tokenize(lumen_model* model, const char* text, size_t size, const char* options, int32_t** tokens,
                             size_t* count);
LUMEN_API int lumen_detokenize(lumen_model* model, const int32_t* tokens, size_t count, char** text, size_t* size);

/* Continues a text. `on_text` gets it piece by piece, and may be null. `json` is handed an object: text, reason ("end",
 * "stop", "grammar", "limit", "context"), prompt_tokens, tokens, seconds. Stopped by `on_text`: LUMEN_INTERRUPTED.
 * Options, with the defaults of `lumen run`: "max_tokens" 128, "temperature", "top_k", "top_p", "min_p", "typical_p",
 * "repeat_penalty", "presence_penalty", "frequency_penalty", "repeat_last", "seed" (-1: another each time), "stop"
 * [TEXT, ..], "grammar" (GBNF), "json_schema" (an object), "logit_bias" {ID: NUMBER}, "ignore_end", "context", "exact"
 */
LUMEN_API int lumen_generate(lumen_model* model, const char* prompt, size_t size, const char* options,
                             lumen_on_text on_text, void* context, char** json);

/* Answers a conversation: `messages` is a list in JSON, [{"role": "user", "content": TEXT}, ..]. Options as above, and
 *   "template" (a name or a file; the model's own), "template_values" (an object). */
LUMEN_API int lumen_chat(lumen_model* model, const char* messages, const char* options, lumen_on_text on_text,
                         void* context, char** json);

/* The natural logits behind each of the tokens, [count, vocabulary], or with `last` behind the last one alone. Options:
 * "context", "exact". */
LUMEN_API int lumen_logits(lumen_model* model, const int32_t* tokens, size_t count, int last, const char* options,
                           float** logits, size_t* vocabulary);

/* The same logits, bit for bit, on the model's device; see "Arrays on a device" below. */
LUMEN_API int lumen_logits_array(lumen_model* model, const int32_t* tokens, size_t count, int last, const char* options,
                                 lumen_array** logits);

/* Embedding vectors of `count` inputs, [count, width]. Options: "pooling" ("mean", "cls", "last"; the model's own),
 * "normalize" (2, as `lumen embed`), "exact". */
LUMEN_API int lumen_embed(lumen_model* model, const char* const* inputs, const size_t* sizes, size_t count,
                          const char* options, float** vectors, size_t* width);

/* How well the model predicts a text, as `lumen perplexity` measures. Options: "length" 512, "batch", "windows" (0:
 * all), "full", "bos" ("front", "windows", "none"), "exact". `json`: perplexity, error, nats, tokens, windows.
 * `on_text` may be null. */
LUMEN_API int lumen_perplexity(lumen_model* model, const char* text, size_t size, const char* options,
                               lumen_on_text on_text, void* context, char** json);

/* ---- Arrays on a device ---- */

/* Kinds of devices, numbered as DLPack does. */
enum { LUMEN_CPU = 1, LUMEN_CUDA = 2, LUMEN_ROCM = 10 };

/* A device. `stream` is one of Lumen's own there, a CUstream or hipStream_t, and null on the processor: arguments are
 * read in its order, so who writes them on another stream has this one wait for that. It lasts as long as the handle.
 */
typedef struct lumen_device {
  int32_t kind;
  int32_t id;
  void* stream;
} lumen_device;

LUMEN_API int lumen_model_device(lumen_model* model, lumen_device* device);

/* Numbers of 32-bit float, the last axis densest, without gaps, in memory of the device: of the process, where that is
 * the processor. They are written when they are handed over, on whatever stream they are read. Any of the pointers may
 * be null; what they get stays as long as the array, which may outlive what it came from. */
LUMEN_API int lumen_array_info(lumen_array* array, lumen_device* device, int* rank, const int64_t** shape,
                               float** data);
/* Its numbers, in memory of this process with room for `count` of them: for all. */
LUMEN_API int lumen_array_read(lumen_array* array, float* to, size_t count);
/* Another with the same numbers, on the same device. */
LUMEN_API int lumen_array_copy(lumen_array* array, lumen_array** copy);
/* Gives the memory back when all that this process has asked of the device by then is done. Null is allowed. */
LUMEN_API void lumen_array_free(lumen_array* array);

/* ---- Functions of the language ---- */

/* Numbers in memory of this process, the last axis densest, without gaps. */
typedef enum { LUMEN_F32 = 0, LUMEN_I32 = 1 } lumen_dtype;
typedef struct lumen_tensor {
  lumen_dtype dtype;
  int rank;
  const int64_t* shape; /* null where rank is 0 */
  const void* data;
} lumen_tensor;

/* A result: memory that is handed over as a whole, `data` and `shape` of it by lumen_free each. */
typedef struct lumen_result {
  int rank;
  int64_t* shape;
  float* data;
} lumen_result;

/* Compiles a function of a text; `name` may be null where the text has one. Machine code is made for the shapes that it
 * is called with. Options: "device", "threads", "cache", "tune" as above, and "exact". */
LUMEN_API int lumen_function_open(const char* text, const char* name, const char* options, lumen_function** function);
LUMEN_API void lumen_function_close(lumen_function* function);
/* A JSON object: name, inputs [{"name", "type"}, ..], results [TYPE, ..]. */
LUMEN_API int lumen_function_info(lumen_function* function, char** json);
/* `results` has room for as many as the function has. Nothing is handed over when it fails. */
LUMEN_API int lumen_function_call(lumen_function* function, const lumen_tensor* inputs, size_t count,
                                  lumen_result* results, size_t result_count);
/* The gradients of sum(results * cotangents) with respect to the inputs whose numbers `wanted` lists, in that order. */
LUMEN_API int lumen_function_gradient(lumen_function* function, const lumen_tensor* inputs, size_t count,
                                      const lumen_tensor* cotangents, size_t result_count, const size_t* wanted,
                                      size_t wanted_count, lumen_result* gradients);

/* The device that a function works on. */
LUMEN_API int lumen_function_device(lumen_function* function, lumen_device* device);

/* An argument in memory of this process (LUMEN_CPU), or of the function's device, which is used there: nothing goes
 * through the host. On any other device it is an error. */
typedef struct lumen_argument {
  lumen_tensor tensor;
  int32_t kind;
  int32_t id;
} lumen_argument;

/* The same two for arguments that lie anywhere, and results on the function's device, each freed by lumen_array_free.
 */
LUMEN_API int lumen_function_call_arrays(lumen_function* function, const lumen_argument* inputs, size_t count,
                                         lumen_array** results, size_t result_count);
LUMEN_API int lumen_function_gradient_arrays(lumen_function* function, const lumen_argument* inputs, size_t count,
                                             const lumen_argument* cotangents, size_t result_count,
                                             const size_t* wanted, size_t wanted_count, lumen_array** gradients);

/* ---- Number formats ---- */

/* A format of a text, or with a null text one that Lumen has. Options: "device", "threads", "cache". */
LUMEN_API int lumen_format_open(const char* text, const char* name, const char* options, lumen_format** format);
LUMEN_API void lumen_format_close(lumen_format* format);
/* A JSON object: name, block, bits (per number, of a matrix of one block in a row). */
LUMEN_API int lumen_format_info(lumen_format* format, char** json);
/* Rounds a matrix of rows * columns numbers to the bytes that files hold, and back. */
LUMEN_API int lumen_format_encode(lumen_format* format, const float* numbers, int64_t rows, int64_t columns,
                                  uint8_t** bytes, size_t* size);
LUMEN_API int lumen_format_decode(lumen_format* format, const uint8_t* bytes, size_t size, int64_t rows,
                                  int64_t columns, float** numbers);

/* ---- Training, a step at a time ---- */

/* Begins what `lumen train` with these arguments does (without the word "train"), up to the first step. Whole runs are
 * lumen_command's. `on_text` is asked every 50 ms whether to go on waiting, and may be null; when it says no the call
 * returns LUMEN_INTERRUPTED, and the work that was begun is finished by itself. */
LUMEN_API int lumen_trainer_open(int count, const char* const* arguments, lumen_on_text on_text, void* context,
                                 lumen_trainer** trainer);
/* `json` of a step: step, loss, norm, rate, tokens, seconds, metrics. */
LUMEN_API int lumen_trainer_step(lumen_trainer* trainer, lumen_on_text on_text, void* context, char** json);
/* Mean nats per token over the first rows of the validation data; 0: all. */
LUMEN_API int lumen_trainer_evaluate(lumen_trainer* trainer, int64_t rows, lumen_on_text on_text, void* context,
                                     double* loss);
/* Writes a checkpoint into the run's folder; its path. */
LUMEN_API int lumen_trainer_save(lumen_trainer* trainer, lumen_on_text on_text, void* context, char** path);
/* Writes a checkpoint and the model's files, as the command does at its end; `json`: output, checkpoint,
 * validation_loss. The trainer can then only be closed. */
LUMEN_API int lumen_trainer_finish(lumen_trainer* trainer, lumen_on_text on_text, void* context, char** json);
/* Ends it where it is; what was saved stays. */
LUMEN_API void lumen_trainer_close(lumen_trainer* trainer);

#ifdef __cplusplus
}
#endif

#endif
