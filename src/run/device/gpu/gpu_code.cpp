#include "run/device/gpu/gpu_code.h"

#include <array>

#include "base/check.h"

namespace lumen::run {
namespace {

constexpr int kLogText = 5, kLogBytes = 6;   // options of the driver's compiler
constexpr int kTextInput = 1;                // for the driver's linker
constexpr int kMostDynamicSharedMemory = 8;  // attribute of a function
constexpr int64_t kSharedWithoutAsking = 48 << 10;

bool is_machine_code(std::string_view object) {
  return object.starts_with(
      "\x7f"
      "ELF");
}

// The log buffer of the driver's compiler.
class Log {
 public:
  unsigned count() const { return 2; }
  int* options() { return options_.data(); }
  void** values() { return values_.data(); }
  std::string text() const {
    const std::string_view said(text_.data());
    return said.empty() ? std::string() : fmt::format("the driver's compiler reports:\n{}", said);
  }

 private:
  std::array<char, 8192> text_{};
  std::array<int, 2> options_ = {kLogText, kLogBytes};
  std::array<void*, 2> values_ = {text_.data(), reinterpret_cast<void*>(text_.size() - 1)};
};

class GpuModule : public Module {
 public:
  GpuModule(GpuContextRef context, void* module) : context_(std::move(context)), module_(module) {}
  ~GpuModule() override {
    try {
      context_->use();
      context_->symbols().module_unload(module_);
    } catch (const Error&) {  // the driver has destroyed the context
    }
  }

  void* find(const std::string& symbol, int64_t shared_bytes) override {
    const GpuSymbols& gpu = context_->symbols();
    context_->use();
    void* function = nullptr;
    if (const int error = gpu.module_function(&function, module_, symbol.c_str()); error != 0)
      throw gpu_error(gpu, error, "module_function", context_->title(), "kernel: " + symbol);
    if (shared_bytes > kSharedWithoutAsking && gpu.function_attribute)
      context_->check(gpu.function_attribute(function, kMostDynamicSharedMemory, static_cast<int>(shared_bytes)),
                      "function_attribute");
    return function;
  }

 private:
  GpuContextRef context_;
  void* module_;
};

}  // namespace

std::string prepare_gpu_code(const GpuContext& context, std::string object) {
  const GpuSymbols& gpu = context.symbols();
  const bool links = gpu.link_create && gpu.link_add && gpu.link_complete && gpu.link_destroy;
  if (!links || is_machine_code(object)) return object;
  context.use();
  Log log;
  void* state = nullptr;
  context.check(gpu.link_create(log.count(), log.options(), log.values(), &state), "link_create");
  void* image = nullptr;
  size_t size = 0;
  const char* doing = "link_add";
  // Includes the terminating zero of the text.
  int error = gpu.link_add(state, kTextInput, object.data(), object.size() + 1, "kernels", 0, nullptr, nullptr);
  if (error == 0) error = gpu.link_complete(state, &image, &size), doing = "link_complete";
  std::string code;
  if (error == 0) code.assign(static_cast<const char*>(image), size);  // owned by the linker until it is destroyed
  gpu.link_destroy(state);
  if (error != 0) throw gpu_error(gpu, error, doing, context.title(), log.text());
  return code;
}

std::unique_ptr<Module> load_gpu_code(const GpuContextRef& context, std::string_view object) {
  const GpuSymbols& gpu = context->symbols();
  context->use();
  const std::string image(object);  // zero-terminated, as required for text
  void* module = nullptr;
  Log log;
  if (gpu.module_load_logged) {
    const int error = gpu.module_load_logged(&module, image.c_str(), log.count(), log.options(), log.values());
    if (error != 0) throw gpu_error(gpu, error, "module_load_logged", context->title(), log.text());
  } else {
    context->check(gpu.module_load(&module, image.c_str()), "module_load");
  }
  return std::make_unique<GpuModule>(context, module);
}

}  // namespace lumen::run
