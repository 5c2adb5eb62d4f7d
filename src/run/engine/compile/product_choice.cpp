#include "run/engine/compile/product_choice.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "kernel/synth/gemm/dense_product.h"
#include "run/engine/program/small_numbers.h"

namespace lumen::run {
namespace {

constexpr int kRounds = 5, kLaunches = 3;  // launches of each implementation, interleaved
constexpr double kGain = 0.98;             // of our time: a smaller gain does not justify different bits
constexpr int64_t kNumberBytes = 4 << 20;  // random data; operands repeat them
constexpr int64_t kCompared = 1 << 16;     // elements of the result
constexpr double kTolerance = 0.05;        // times their size: above any rounding to a short type, below an error

// One product by both implementations, in one block of memory.
class Comparison {
 public:
  Comparison(const CompileContext& context, const graph::Graph& g, const GroupForm& form, const Synthesized& own,
             const ChosenProduct& chosen, const machine::DenseProduct& what)
      : device_(context.device) {
    std::vector<BufferAddress> addresses(form.values.size());
    int64_t end = 0;
    for (const size_t v : chosen.values) {
      addresses[v] = {BufferAddress::In::arena, end};
      end += aligned(graph::byte_size(g[form.values[v]].type));
    }
    const int64_t operands = addresses[chosen.values.back()].at, scratch_at = end;
    for (const int64_t bytes : own.scratch) end += aligned(bytes);
    const int64_t status_at = end;
    memory_ = allocate_shared(device_, end + aligned(sizeof(LaunchStatus)));
    base_ = static_cast<std::byte*>(memory_.get());
    status_ = reinterpret_cast<LaunchStatus*>(base_ + status_at);
    for (const size_t v : chosen.values) buffers_.push_back(base_ + addresses[v].at);
    const std::vector<uint8_t> numbers = small_numbers(kNumberBytes);
    for (int64_t at = 0; at < operands; at += numbers.size())
      device_->copy_in(base_ + at, numbers.data(), std::min(operands - at, std::ssize(numbers)));
    if (what.scales) {
      const float scale = 0.5F;
      for (const size_t i : {2, 3}) device_->copy_in(buffers_[i], &scale, sizeof scale);
    }
    result_ = what.result;
    result_bytes_ = std::min<int64_t>(kCompared, what.m * what.n) * scalar_bytes(what.result);
    CompileReport unused;
    own_ = compile_steps(context, own, addresses, scratch_at, &unused);
    product_ = chosen.product;
    marks_ = device_->make_marks(2);
    LUMEN_CHECK(marks_, "a device with a library and without marks");
  }

  // Compares both results on the same data: "" if they agree within rounding, otherwise a description of the
  // difference.
  std::string disagreement() {
    run_own();
    const std::vector<float> ours = result();
    const std::vector<uint8_t> poison(result_bytes_, 0xff);
    device_->copy_in(buffers_.back(), poison.data(), result_bytes_);
    product_->multiply(buffers_);
    const std::vector<float> theirs = result();
    double square = 0;
    for (const float x : ours) square += x * static_cast<double>(x);
    const double size = std::sqrt(square / ours.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      const double off = std::abs(theirs[i] - static_cast<double>(ours[i]));
      if (!(off <= kTolerance * size))
        return fmt::format("element {} is {:g}, by our kernels {:g}", i, theirs[i], ours[i]);
    }
    return {};
  }

  bool library_is_faster() {
    std::vector<double> own, library;
    for (int i = 0; i <= kRounds; ++i) {
      const double ours = seconds([this] { run_own(); }), theirs = seconds([this] { product_->multiply(buffers_); });
      if (i == 0) continue;  // warm-up round
      own.push_back(ours);
      library.push_back(theirs);
    }
    verbose(fmt::format("{:.1f} us, by the library {:.1f} us", median(own) / kLaunches * 1e6,
                        median(library) / kLaunches * 1e6));
    return median(library) < kGain * median(own);
  }

 private:
  // The first elements.
  std::vector<float> result() {
    std::vector<uint8_t> bytes(result_bytes_);
    device_->copy_out(bytes.data(), buffers_.back(), result_bytes_);
    std::vector<float> out;
    for (size_t at = 0; at < bytes.size(); at += scalar_bytes(result_)) {
      uint32_t bits = 0;
      std::memcpy(&bits, &bytes[at], scalar_bytes(result_));
      out.push_back(result_ == Scalar::f32    ? std::bit_cast<float>(bits)
                    : result_ == Scalar::bf16 ? bf16_to_f32(bits)
                                              : f16_to_f32(bits));
    }
    return out;
  }

  template <typename Launch>
  double seconds(const Launch& launch) {
    marks_->set(0);
    for (int i = 0; i < kLaunches; ++i) launch();
    marks_->set(1);
    return marks_->seconds(0, 1);
  }

  void run_own() {
    for (const Launch& launch : own_) {
      std::vector<void*> buffers;
      for (const BufferAddress& at : launch.addresses) buffers.push_back(base_ + at.at);
      device_->launch(launch.kernel, buffers, launch.launch_config, status_);
    }
  }

  std::shared_ptr<Device> device_;
  std::shared_ptr<void> memory_;
  std::byte* base_ = nullptr;
  LaunchStatus* status_ = nullptr;
  std::vector<void*> buffers_;  // of the product
  Scalar result_ = Scalar::f32;
  int64_t result_bytes_ = 0;  // bytes that are compared
  std::vector<Launch> own_;
  std::shared_ptr<Product> product_;
  std::unique_ptr<Device::Marks> marks_;
};

std::string name_of(const machine::DenseProduct& d, const std::string& library) {
  const std::string operands =
      d.code ? fmt::format("{}.{} bits", d.code->exponent, d.code->mantissa) : std::string(scalar_name(d.operands));
  return fmt::format("product {}x{}x{} {}{} -> {} by {}", d.m, d.n, d.k, operands, d.adds ? " and a sum" : "",
                     scalar_name(d.result), library);
}

}  // namespace

std::vector<ChosenProduct> choose_products(const CompileContext& context, const graph::Plan& plan,
                                           const CompileOptions& options, const DistinctKernels& kernels) {
  std::vector<ChosenProduct> out(kernels.distinct.size());
  if (!context.products) return out;
  const std::string library = context.device->open_products();
  for (size_t i = 0; i < out.size(); ++i) {
    const auto dense = synth::dense_group(plan, plan.groups[kernels.first[i]], options.products.scalar);
    if (!dense) continue;
    const GroupForm& form = kernels.forms[i];
    ChosenProduct chosen{context.device->find_product(dense->product), {}, name_of(dense->product, library)};
    if (!chosen.product) continue;
    for (const graph::ValueId v : dense->values) {
      const auto at = std::find(form.values.begin(), form.values.end(), v);
      LUMEN_CHECK(at != form.values.end(), "a product reads %{}, which its group does not list", v);
      chosen.values.push_back(at - form.values.begin());
    }
    const std::string key = context.products->key_of(chosen.plan + "\n" + form.meaning);
    const std::string& ours = kernels.distinct[i].hash;
    std::optional<ChosenPlan> choice = context.products->remembered(key);
    if (!choice || choice->hash != ours) {
      try {
        verbose(chosen.plan);
        Comparison both(context, plan.graph, form, kernels.distinct[i], chosen, dense->product);
        const std::string wrong = both.disagreement();
        if (!wrong.empty()) warn(fmt::format("{} is not used: {}", chosen.plan, wrong));
        const bool faster = wrong.empty() && both.library_is_faster();
        choice = ChosenPlan{faster ? 1 : 0, ours};
      } catch (const Error& error) {
        note(fmt::format("{} is not tried: {}", chosen.plan, error.what()));
        continue;
      }
      context.products->remember(key, *choice);
    }
    if (choice->number == 1) out[i] = std::move(chosen);
  }
  return out;
}

}  // namespace lumen::run
