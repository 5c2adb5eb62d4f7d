#include "model/infer/session_many.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "model/infer/forecast.h"

namespace lumen::model {
namespace {

constexpr int64_t kRows = ManySession::kMostTexts;  // logits of so many tokens come out of one step
constexpr int64_t kWidthStep = 4;

}  // namespace

ManySession::ManySession(const LoadedModel& loaded, SessionOptions options, int64_t longest)
    : loaded_(loaded),
      options_(session_options(loaded.model(), std::move(options))),
      longest_(longest > 0 ? longest : std::min(options_.context, loaded.model().integer("context"))) {
  const Model& model = loaded.model();
  if (!model.family->has_function("step_many"))
    throw user_error("the family '{}' cannot compute several texts at once", model.family->name());
  graph_ = loaded.function("step_many");
  run::CompileOptions compile = step_options(model, graph_, options_);
  compile.symbols = {{"T", 1}, {"R", 1}, {"S", options_.context}};
  cache_bytes_ = state_bytes(graph_, compile);
  require_session(loaded, cache_bytes_, 0, options_);
  texts_.resize(kMostTexts);
  positions_.resize(static_cast<size_t>(options_.context));
  owners_.resize(positions_.size());
}

std::vector<int64_t> ManySession::widths(const SessionOptions& options) {
  std::vector<int64_t> widths = {1};
  while (widths.back() < options.chunk) widths.push_back(widths.back() * kWidthStep);
  return widths;
}

void ManySession::check_open(int text) const {
  LUMEN_CHECK(text >= 0 && text < kMostTexts && texts_[static_cast<size_t>(text)].is_open, "no text {}", text);
}

int ManySession::open() {
  for (int i = 0; i < kMostTexts; ++i) {
    Text& t = texts_[static_cast<size_t>(i)];
    if (t.is_open) continue;
    t.is_open = true;
    return i;
  }
  throw user_error("{} texts are open, and there cannot be more", kMostTexts);
}

void ManySession::close(int text) {
  rewind(text, 0);
  texts_[static_cast<size_t>(text)].is_open = false;
}

void ManySession::share(int from, int to, int64_t count) {
  check_open(from);
  check_open(to);
  Text& source = texts_[static_cast<size_t>(from)];
  Text& target = texts_[static_cast<size_t>(to)];
  LUMEN_CHECK(target.tokens.empty() && count >= 0 && count <= length(from));
  for (size_t i = 0; i < owners_.size(); ++i)
    if ((owners_[i] >> from & 1) && positions_[i] < count) owners_[i] |= 1 << to;
  target.tokens.assign(source.tokens.begin(), source.tokens.begin() + count);
}

void ManySession::rewind(int text, int64_t length) {
  check_open(text);
  for (size_t i = 0; i < owners_.size(); ++i)
    if (positions_[i] >= length) owners_[i] &= ~(1 << text);
  auto& tokens = texts_[static_cast<size_t>(text)].tokens;
  LUMEN_CHECK(length <= static_cast<int64_t>(tokens.size()));
  tokens.resize(static_cast<size_t>(length));
}

int64_t ManySession::free_places() const {
  return std::count(owners_.begin(), owners_.end(), 0);
}

int64_t ManySession::find_place(int64_t count) const {
  int64_t run = 0;
  for (size_t i = 0; i < owners_.size(); ++i) {
    run = owners_[i] == 0 ? run + 1 : 0;
    if (run == count) return static_cast<int64_t>(i) + 1 - count;
  }
  return -1;
}

const ManySession::Width& ManySession::width(int64_t tokens) {
  for (const Width& w : widths_)
    if (w.tokens == tokens) return w;
  run::Engine& engine = loaded_.engine();
  run::CompileOptions options = step_options(loaded_.model(), graph_, options_);
  options.symbols = {{"T", tokens}, {"R", std::min(tokens, kRows)}, {"S", options_.context}};
  Width w;
  w.tokens = tokens;
  w.program = engine.compile(graph_, options);
  work_bytes_ += w.program->arena_bytes();
  require_session(loaded_, cache_bytes_, work_bytes_, options_);
  for (const std::string& name : w.program->input_names()) {
    const graph::Type type = w.program->input_type(name);
    run::DeviceTensorRef tensor;
    if (const auto weight = loaded_.weights().find(name); weight != loaded_.weights().end()) {
      tensor = weight->second;
    } else if (graph_[graph_.find_input(name)].attributes.role == graph::Role::state) {
      auto& state = states_[name];
      if (!state) state = std::make_shared<run::DeviceTensor>(engine.device(), type);
      tensor = state;
    } else {
      tensor = w.in[name] = std::make_shared<run::DeviceTensor>(engine.device(), type);
    }
    w.program->bind(name, tensor);
  }
  return widths_.emplace_back(std::move(w));
}

// As many items as the step is wide, at most; filled up with tokens nobody sees.
void ManySession::run(std::span<const Item> items, std::vector<std::vector<float>>& logits) {
  int64_t wide = 1;
  while (wide < static_cast<int64_t>(items.size())) wide *= kWidthStep;
  int64_t place = find_place(wide);
  if (place < 0 && wide > 1) {  // no such run of places is empty: smaller steps
    const size_t half = (items.size() + 1) / 2;
    if (items.size() == 1) {
      wide = 1;
      place = find_place(1);
    } else {
      run(items.first(half), logits);
      run(items.subspan(half), logits);
      return;
    }
  }
  LUMEN_CHECK(place >= 0, "the cache is full");
  const Width& w = width(wide);
  const auto count = static_cast<size_t>(wide);
  std::vector<int32_t> ids(count, 0), at(count, 0), owners(count, 0),
      rows(static_cast<size_t>(std::min(wide, kRows)), 0);
  std::vector<int64_t> parts;
  for (size_t i = 0; i < items.size(); ++i) {
    ids[i] = items[i].id;
    at[i] = items[i].position;
    owners[i] = items[i].owners;
    positions_[static_cast<size_t>(place) + i] = at[i];
    owners_[static_cast<size_t>(place) + i] = owners[i];
    if (items[i].part < 0) continue;
    rows[parts.size()] = static_cast<int32_t>(i);
    parts.push_back(items[i].part);
  }
  const auto first = static_cast<int32_t>(place), longest = static_cast<int32_t>(longest_);
  const auto put = [&](const char* name, const void* data) { w.in.at(name)->upload(data, w.in.at(name)->bytes()); };
  put("tokens", ids.data());
  put("positions", at.data());
  put("owners", owners.data());
  put("place", &first);
  if (w.in.contains("length")) put("length", &longest);
  put("key_positions", positions_.data());
  put("key_owners", owners_.data());
  put("rows", rows.data());
  w.program->run();
  if (parts.empty()) return;
  const auto vocab = static_cast<size_t>(loaded_.model().integer("vocab"));
  std::vector<float> all(rows.size() * vocab);
  w.program->result(kResult)->download(all.data(), static_cast<int64_t>(all.size() * sizeof(float)));
  for (size_t i = 0; i < parts.size(); ++i)
    logits[static_cast<size_t>(parts[i])].assign(all.begin() + static_cast<int64_t>(i * vocab),
                                                 all.begin() + static_cast<int64_t>((i + 1) * vocab));
}

std::vector<std::vector<float>> ManySession::feed(std::span<const Part> parts) {
  std::vector<Item> items;
  for (size_t p = 0; p < parts.size(); ++p) {
    check_open(parts[p].text);
    LUMEN_CHECK(!parts[p].tokens.empty());
    for (size_t before = 0; before < p; ++before)
      LUMEN_CHECK(parts[before].text != parts[p].text, "text {} is given twice", parts[p].text);
    const auto start = static_cast<int32_t>(length(parts[p].text));
    for (size_t i = 0; i < parts[p].tokens.size(); ++i) {
      const bool last = i + 1 == parts[p].tokens.size();
      items.push_back({parts[p].tokens[i], start + static_cast<int32_t>(i), 1 << parts[p].text,
                       last ? static_cast<int64_t>(p) : -1});
    }
  }
  if (static_cast<int64_t>(items.size()) > free_places()) {
    throw Error(Exit::user, fmt::format("{} tokens for {} empty places of the cache", items.size(), free_places()),
                "close texts, or raise --ctx-size");
  }
  std::vector<std::vector<float>> logits(parts.size());
  // A step gives logits of at most kRows tokens.
  for (size_t begin = 0; begin < items.size();) {
    size_t end = begin;
    int64_t asked = 0;
    while (end < items.size() && static_cast<int64_t>(end - begin) < options_.chunk && asked < kRows)
      asked += items[end++].part >= 0 ? 1 : 0;
    run(std::span(items).subspan(begin, end - begin), logits);
    begin = end;
  }
  for (const Part& p : parts) {
    auto& tokens = texts_[static_cast<size_t>(p.text)].tokens;
    tokens.insert(tokens.end(), p.tokens.begin(), p.tokens.end());
  }
  return logits;
}

}  // namespace lumen::model
