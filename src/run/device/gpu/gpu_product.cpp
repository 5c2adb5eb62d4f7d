// See gpu_product.h. The libraries use column-major order: a row-major matrix is its transpose to them, so the call is
// transposed(result) = transposed(right) . transposed(left).
#include "run/device/gpu/gpu_product.h"

#include <array>
#include <cstring>
#include <optional>

#include "base/check.h"

namespace lumen::run {
namespace {

constexpr int64_t kScratchBytes = int64_t{32} << 20;  // recommended by the vendors for their newest GPUs
constexpr size_t kMostFoundBytes = 96;
constexpr uint32_t kSumsOfPartsInF32 = 2;  // split-K with stored partial sums, reduced in order in a second step
constexpr float kOne = 1, kZero = 0;

// Both use the same type numbers; -1: no such type.
int type_number(Scalar s, const std::optional<machine::FloatCode>& code = {}) {
  using Special = machine::FloatCode::Special;
  switch (s) {
    case Scalar::f32:
      return 0;
    case Scalar::f16:
      return 2;
    case Scalar::bf16:
      return 14;
    default:
      break;
  }
  if (s != Scalar::u8 || !code) return -1;
  if (*code == machine::FloatCode{4, 3, 7, Special::all_ones}) return 28;
  if (*code == machine::FloatCode{5, 2, 15, Special::ieee}) return 29;
  if (*code == machine::FloatCode{4, 3, 8, Special::negative_zero}) return 1000;
  if (*code == machine::FloatCode{5, 2, 16, Special::negative_zero}) return 1001;
  return -1;
}

// A descriptor of the library, destroyed by the destructor.
class Described {
 public:
  explicit Described(int (*destroy)(void*)) : destroy_(destroy) {}
  ~Described() {
    if (handle) destroy_(handle);
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;
  void* handle = nullptr;

 private:
  int (*destroy_)(void*);
};

}  // namespace

struct GpuProducts::Library {
  GpuContextRef context;
  std::shared_ptr<const ProductSymbols> symbols;
  GpuMemory& memory;
  void *handle = nullptr, *scratch = nullptr;

  Library(GpuContextRef c, GpuMemory& m)
      : context(std::move(c)), symbols(open_product_library(context->vendor())), memory(m) {
    context->use();
    check(symbols->create(&handle), "create");
    try {
      scratch = memory.allocate(kScratchBytes);
    } catch (...) {
      symbols->destroy(handle);
      throw;
    }
  }
  ~Library() {
    memory.release(scratch);
    symbols->destroy(handle);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  void check(int error, const char* name) const {
    if (error == 0) return;
    throw Error(Exit::hardware,
                fmt::format("{}: {} of {} fails with {}", context->title(), product_symbol(context->vendor(), name),
                            symbols->title, error),
                "without --libraries Lumen's own kernels multiply");
  }
};

namespace {

class GpuProduct : public Product {
 public:
  GpuProduct(std::shared_ptr<GpuProducts::Library> library, const machine::DenseProduct& what)
      : library_(std::move(library)),
        scales_(what.scales),
        adds_(what.adds),
        work_(library_->symbols->work_destroy),
        left_(library_->symbols->matrix_destroy),
        right_(library_->symbols->matrix_destroy),
        result_(library_->symbols->matrix_destroy) {
    const GpuProducts::Library& l = *library_;
    const ProductSymbols& s = *l.symbols;
    const ProductNumbers& n = s.numbers;
    l.context->use();
    l.check(s.work_create(&work_.handle, n.compute_f32, type_number(Scalar::f32)), "work_create");
    const auto turn = [&](int attribute, bool transposed) {
      const int32_t value = transposed ? n.transposed : n.as_it_is;
      l.check(s.work_set(work_.handle, attribute, &value, sizeof value), "work_set");
    };
    turn(n.work_transposes_a, what.right_transposed);
    turn(n.work_transposes_b, what.left_transposed);
    // The stored matrix: number of rows, numbers per row.
    const auto matrix = [&](Described& to, int type, int64_t rows, int64_t columns) {
      l.check(s.matrix_create(&to.handle, type, static_cast<uint64_t>(columns), static_cast<uint64_t>(rows), columns),
              "matrix_create");
    };
    const int operands = type_number(what.operands, what.code);
    matrix(left_, operands, what.left_transposed ? what.k : what.m, what.left_transposed ? what.m : what.k);
    matrix(right_, operands, what.right_transposed ? what.n : what.k, what.right_transposed ? what.k : what.n);
    matrix(result_, type_number(what.result), what.m, what.n);
  }

  // Requests an algorithm from the library; false if there is none.
  bool find_way() {
    const GpuProducts::Library& l = *library_;
    const ProductSymbols& s = *l.symbols;
    const ProductNumbers& n = s.numbers;
    LUMEN_CHECK(n.found_bytes <= way_.size());
    Described wishes(s.wishes_destroy);
    l.check(s.wishes_create(&wishes.handle), "wishes_create");
    const uint64_t most = kScratchBytes;
    l.check(s.wishes_set(wishes.handle, n.wish_scratch, &most, sizeof most), "wishes_set");
    if (n.wish_sums >= 0)
      l.check(s.wishes_set(wishes.handle, n.wish_sums, &kSumsOfPartsInF32, sizeof kSumsOfPartsInF32), "wishes_set");
    int count = 0;
    // An unsupported product gives an error or an empty result.
    const int error = s.find(l.handle, work_.handle, right_.handle, left_.handle, result_.handle, result_.handle,
                             wishes.handle, 1, way_.data(), &count);
    int found_error = 0;
    uint64_t scratch_bytes = 0;
    std::memcpy(&found_error, way_.data() + n.found_error, sizeof found_error);
    std::memcpy(&scratch_bytes, way_.data() + n.found_scratch, sizeof scratch_bytes);
    return error == 0 && count > 0 && found_error == 0 && scratch_bytes <= most;
  }

  void multiply(std::span<void* const> buffers) override {
    LUMEN_CHECK(buffers.size() == 3u + (scales_ ? 2 : 0) + (adds_ ? 1 : 0), "a product of {} buffers", buffers.size());
    const GpuProducts::Library& l = *library_;
    void* const to = buffers.back();
    l.context->use();
    const auto scale = [&](int attribute, void* address) {
      l.check(l.symbols->work_set(work_.handle, attribute, &address, sizeof address), "work_set");
    };
    if (scales_) {
      scale(l.symbols->numbers.work_scales_a, buffers[2]);
      scale(l.symbols->numbers.work_scales_b, buffers[3]);
    }
    l.check(l.symbols->multiply(l.handle, work_.handle, &kOne, buffers[1], right_.handle, buffers[0], left_.handle,
                                adds_ ? &kOne : &kZero, adds_ ? buffers[buffers.size() - 2] : to, result_.handle, to,
                                result_.handle, way_.data(), l.scratch, kScratchBytes, l.context->stream()),
            "multiply");
  }

 private:
  std::shared_ptr<GpuProducts::Library> library_;
  bool scales_, adds_;
  Described work_, left_, right_, result_;
  alignas(8) std::array<std::byte, kMostFoundBytes> way_{};  // the library's answer; it starts with the algorithm
};

}  // namespace

GpuProducts::GpuProducts(GpuContextRef context, GpuMemory& memory)
    : library_(std::make_shared<Library>(std::move(context), memory)) {}

const std::string& GpuProducts::title() const {
  return library_->symbols->title;
}

std::unique_ptr<Product> GpuProducts::find(const machine::DenseProduct& what) {
  if (type_number(what.operands, what.code) < 0) return nullptr;
  auto product = std::make_unique<GpuProduct>(library_, what);
  return product->find_way() ? std::move(product) : nullptr;
}

}  // namespace lumen::run
