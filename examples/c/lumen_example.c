/* Lumen from C: a model continues a text, and a function of the language is called with its gradient.
 *
 *   cc -std=c11 -Iinclude examples/c/lumen_example.c -Lbuild -llumen -Wl,-rpath,$PWD/build -o lumen_example
 *   ./lumen_example model.gguf "Once upon a time" */
#include <lumen.h>
#include <stdio.h>
#include <string.h>

/* Says what went wrong, and what to do about it. */
static int failed(int status) {
  const char* hint = NULL;
  const char* message = lumen_last_error(&hint);
  fprintf(stderr, "error: %s\n", message);
  if (hint[0] != '\0') fprintf(stderr, "  hint: %s\n", hint);
  return status;
}

/* Hears the text piece by piece; anything but 0 goes on. */
static int print_piece(void* context, const char* piece, size_t size) {
  (void)context;
  fwrite(piece, 1, size, stdout);
  return fflush(stdout) == 0;
}

static int write_text(const char* path, const char* prompt) {
  lumen_model* model = NULL;
  int status = lumen_model_open(path, NULL, &model);
  if (status != LUMEN_OK) return failed(status);
  char* json = NULL;
  printf("%s", prompt);
  status = lumen_generate(model, prompt, strlen(prompt), "{\"max_tokens\": 24, \"seed\": 1}", print_piece, NULL, &json);
  if (status == LUMEN_OK) printf("\n%s\n", json);
  lumen_free(json);
  lumen_model_close(model);
  return status == LUMEN_OK ? LUMEN_OK : failed(status);
}

static int call_function(void) {
  const float x[4] = {1, 2, 3, 4}, one[1] = {1};
  const int64_t shape[1] = {4};
  const lumen_tensor input = {LUMEN_F32, 1, shape, x}, weight = {LUMEN_F32, 0, NULL, one};
  const size_t first = 0;
  lumen_function* function = NULL;
  lumen_result value, gradient;
  int status = lumen_function_open("fn squares(x: f32[N]) -> f32 = sum(i) x[i] * x[i]", NULL, NULL, &function);
  if (status != LUMEN_OK) return failed(status);
  status = lumen_function_call(function, &input, 1, &value, 1);
  if (status == LUMEN_OK) {
    printf("sum of squares: %g\n", value.data[0]);
    lumen_free(value.data);
    lumen_free(value.shape);
    status = lumen_function_gradient(function, &input, 1, &weight, 1, &first, 1, &gradient);
  }
  if (status == LUMEN_OK) {
    printf("gradient: %g %g %g %g\n", gradient.data[0], gradient.data[1], gradient.data[2], gradient.data[3]);
    lumen_free(gradient.data);
    lumen_free(gradient.shape);
  }
  lumen_function_close(function);
  return status == LUMEN_OK ? LUMEN_OK : failed(status);
}

int main(int count, char** arguments) {
  if (count != 3) {
    fprintf(stderr, "usage: %s MODEL PROMPT\n", arguments[0]);
    return LUMEN_USAGE;
  }
  printf("Lumen %s, interface %d\n", lumen_version(), lumen_api_version());
  const int status = call_function();
  return status == LUMEN_OK ? write_text(arguments[1], arguments[2]) : status;
}
