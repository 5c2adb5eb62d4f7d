#include "model/infer/narrowing/masked_rows.h"

#include "base/check.h"
#include "base/threads/team.h"

namespace lumen::model {
namespace {

constexpr int64_t kBits = 32;  // of a word of a mask
static_assert(TokenSet::kWord == 2 * kBits);

}  // namespace

MaskedRows::MaskedRows(run::Engine& engine, const Library& library, const Narrowing& narrowing, int64_t rows)
    : narrowing_(narrowing), rows_(rows) {
  run::CompileOptions options;
  options.symbols = {{"R", rows}};
  program_ = engine.compile(narrowing_.masked(library), options);
  const auto input = [&](const char* name) {
    auto tensor = std::make_shared<run::DeviceTensor>(engine.device(), program_->input_type(name));
    program_->bind(name, tensor);
    return tensor;
  };
  asked_ = input(Narrowing::kAsked);
  scales_ = input(Narrowing::kScales);
  masks_ = input(Narrowing::kMasks);
}

std::vector<std::optional<Narrowed>> MaskedRows::narrow(const run::DeviceTensorRef& logits,
                                                        std::span<const Asked> asked,
                                                        std::span<const RowSource::Masked> which) {
  // Rows that are not wanted allow no token, and their results are not read.
  const size_t each = narrowing_.asked(), words = narrowing_.words(), width = narrowing_.width();
  std::vector<int32_t> ids(rows_ * each, 0), masks(rows_ * words, 0);
  std::vector<float> scales(rows_, 1), values(rows_ * width);
  for (const RowSource::Masked& m : which) {
    LUMEN_CHECK(m.row >= 0 && m.row < rows_);
    narrowing_.ask(asked[m.row], std::span(ids).subspan(m.row * each, each), &scales[m.row]);
    for (size_t w = 0; w < words; ++w)
      masks[m.row * words + w] = static_cast<int32_t>(m.allowed->word(w / 2) >> kBits * (w % 2));
  }
  asked_->upload(ids.data(), asked_->bytes());
  scales_->upload(scales.data(), scales_->bytes());
  masks_->upload(masks.data(), masks_->bytes());
  program_->bind(Narrowing::kLogits, logits);
  program_->run();
  program_->result(Narrowing::kNarrowed)->download(values.data(), std::ssize(values) * int64_t{sizeof(float)});
  std::vector<std::optional<Narrowed>> out(which.size());
  parallel_for(0, std::ssize(which), {.grain = 1, .is_worth = which.size() > 1}, [&](int64_t i) {
    const std::span<const float> row = std::span<const float>(values).subspan(which[i].row * width, width);
    out[i] = narrowing_.read(row, asked[which[i].row], true);
  });
  return out;
}

}  // namespace lumen::model
