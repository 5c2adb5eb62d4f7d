#include "model/infer/narrowing/further_rows.h"

#include <algorithm>

#include "base/check.h"
#include "base/threads/team.h"
#include "model/infer/narrowing/tallying.h"

namespace lumen::model::infer {
namespace {

static_assert(TokenSet::kWord == 2 * Narrowing::kBits);

template <typename T>
void upload(const std::map<std::string, run::DeviceTensorRef>& in, const char* name, const std::vector<T>& data) {
  const run::DeviceTensorRef& tensor = in.at(name);
  LUMEN_CHECK(std::ssize(data) * int64_t{sizeof(T)} == tensor->bytes());
  tensor->upload(data.data(), tensor->bytes());
}

std::vector<float> downloaded(run::Program& program, const char* name) {
  const run::DeviceTensorRef result = program.result(name);
  std::vector<float> out(size_t(result->bytes()) / sizeof(float));
  result->download(out.data(), result->bytes());
  return out;
}

// The masks of all rows; those that are not wanted have none, and their results are not read.
template <typename What>
std::vector<const TokenSet*> masks_of(std::span<const What> which, int64_t rows) {
  std::vector<const TokenSet*> masks(rows, nullptr);
  for (const What& w : which) {
    LUMEN_CHECK(w.row >= 0 && w.row < rows && !masks[w.row]);
    masks[w.row] = w.allowed;
  }
  return masks;
}

}  // namespace

graph::Graph FurtherRows::looking(const arch::Library& library, const Narrowing& narrowing) {
  return narrowing.masked(library);
}

graph::Graph FurtherRows::counting(const arch::Library& library, const Narrowing& narrowing) {
  return Tallying::graph(library, narrowing);
}

FurtherRows::Program FurtherRows::compiled(const graph::Graph& graph, int64_t rows,
                                           const run::DeviceTensorRef& masks) const {
  run::CompileOptions options;
  options.symbols = {{"R", rows}};
  Program out;
  out.program = engine_.compile(graph, options);
  for (const std::string& name : out.program->input_names()) {
    if (name == Narrowing::kLogits) continue;
    const bool is_shared = name == Narrowing::kMasks && masks;
    auto& tensor = out.in[name];
    tensor = is_shared ? masks : std::make_shared<run::DeviceTensor>(engine_.device(), out.program->input_type(name));
    out.program->bind(name, tensor);
  }
  return out;
}

bool FurtherRows::prepare(int64_t rows) {
  if (by_rows_.contains(rows)) return false;
  (void)of_rows(rows);
  return true;
}

FurtherRows::OfRows& FurtherRows::of_rows(int64_t rows) {
  const auto found = by_rows_.find(rows);
  if (found != by_rows_.end()) return found->second;
  OfRows made;
  made.look = compiled(looking(library_, narrowing_), rows, nullptr);
  made.masks = made.look.in.at(Narrowing::kMasks);
  made.count = compiled(counting(library_, narrowing_), rows, made.masks);
  return by_rows_.emplace(rows, std::move(made)).first->second;
}

// Uploads the masks that are not on the device yet: those of a grammar's state often are.
void FurtherRows::put_masks(OfRows& of, int64_t rows, const std::vector<const TokenSet*>& masks) {
  const size_t words = narrowing_.words();
  const bool is_first = of.words.empty();
  if (is_first) of.words.assign(rows * words, 0);
  int64_t first = is_first ? 0 : rows, last = is_first ? rows - 1 : -1;
  for (int64_t r = 0; r < rows; ++r) {
    if (!masks[r]) continue;
    int32_t* const there = of.words.data() + size_t(r) * words;
    bool is_same = true;
    for (size_t w = 0; w < words; ++w) {
      const auto word = static_cast<int32_t>(masks[r]->word(w / 2) >> Narrowing::kBits * (w % 2));
      is_same = is_same && there[w] == word;
      there[w] = word;
    }
    if (is_same && !is_first) continue;
    ++uploaded_masks_;
    first = std::min(first, r);
    last = std::max(last, r);
  }
  if (first > last) return;
  const graph::Type type{{graph::Dim(last - first + 1), graph::Dim(narrowing_.words())}, of.masks->type().element};
  const int64_t at = first * narrowing_.words();
  run::DeviceTensor some(engine_.device(), type, of.masks, static_cast<int32_t*>(of.masks->data()) + at);
  some.upload(of.words.data() + at, some.bytes());
}

std::vector<std::optional<Narrowed>> FurtherRows::look(const run::DeviceTensorRef& logits,
                                                       std::span<const RowSource::Look> which) {
  const int64_t rows = logits->type().shape[0].number();
  OfRows& of = of_rows(rows);
  put_masks(of, rows, masks_of(which, rows));
  const size_t each = narrowing_.asked(), width = narrowing_.width();
  std::vector<int32_t> ids(rows * each, 0), lasts(rows, 0);
  std::vector<float> scales(rows, 1), limits(rows * 2, 0);
  for (const RowSource::Look& l : which) {
    narrowing_.ask(l.asked, std::span(ids).subspan(l.row * each, each), &scales[l.row]);
    limits[l.row * 2] = std::max(float(l.range.edge.logit), float(Narrowing::kFilling));
    limits[l.row * 2 + 1] = l.range.high;
    lasts[l.row] = l.range.edge.id;
  }
  upload(of.look.in, Narrowing::kAsked, ids);
  upload(of.look.in, Narrowing::kScales, scales);
  upload(of.look.in, Narrowing::kLimits, limits);
  upload(of.look.in, Narrowing::kLasts, lasts);
  of.look.program->bind(Narrowing::kLogits, logits);
  of.look.program->run();
  const std::vector<float> values = downloaded(*of.look.program, Narrowing::kNarrowed);
  std::vector<std::optional<Narrowed>> out(which.size());
  parallel_for(0, std::ssize(which), {.grain = 1, .is_worth = which.size() > 1}, [&](int64_t i) {
    out[i] = narrowing_.read(std::span(values).subspan(which[i].row * width, width), which[i].asked, true);
  });
  return out;
}

std::vector<Tallies> FurtherRows::count(const run::DeviceTensorRef& logits, std::span<const RowSource::Count> which) {
  const int64_t rows = logits->type().shape[0].number();
  OfRows& of = of_rows(rows);
  put_masks(of, rows, masks_of(which, rows));
  constexpr auto kEach = size_t{RowSource::kMostEdges};
  std::vector<float> edges(rows * kEach, 0), points(rows * 2, 0), scales(rows, 1);
  std::vector<int32_t> lasts(rows * kEach, 0);
  for (const RowSource::Count& c : which)
    Tallying::ask(c, std::span(edges).subspan(c.row * kEach, kEach), std::span(lasts).subspan(c.row * kEach, kEach),
                  std::span(points).subspan(c.row * 2, 2), &scales[c.row]);
  upload(of.count.in, Tallying::kEdges, edges);
  upload(of.count.in, Tallying::kLasts, lasts);
  upload(of.count.in, Tallying::kPoints, points);
  upload(of.count.in, Narrowing::kScales, scales);
  of.count.program->bind(Narrowing::kLogits, logits);
  of.count.program->run();
  const std::vector<float> values = downloaded(*of.count.program, Tallying::kTallied);
  std::vector<Tallies> out;
  for (const RowSource::Count& c : which)
    out.push_back(
        Tallying::read(std::span(values).subspan(c.row * Tallying::kWidth, Tallying::kWidth), c.edges.size()));
  return out;
}

}  // namespace lumen::model::infer
