#include "model/infer/session/session.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"
#include "graph/ir/build.h"
#include "model/arch/adapter/adapter_sets.h"
#include "model/arch/function.h"
#include "model/arch/held_formats.h"
#include "model/infer/narrowing/step_rows.h"
#include "model/infer/session/cache_format.h"
#include "model/infer/session/finite.h"
#include "model/infer/session/forecast.h"
#include "model/infer/session/seen_rows.h"
#include "model/infer/session/step_plan.h"
#include "run/engine/compile/repeat.h"
#include "run/engine/program/parameter_uploads.h"

namespace lumen::model::infer {
namespace {

constexpr int64_t kWidthStep = 2, kNarrowest = 8;

// nullopt if no adapter has whole weights.
std::optional<arch::Model> changed(const arch::Model& model, std::span<const arch::ScaledAdapter> adapters) {
  std::vector<const arch::Adapter*> whole;
  for (const arch::ScaledAdapter& s : adapters) {
    require_scale(s);
    if (!s.adapter.whole.empty()) whole.push_back(&s.adapter);
  }
  if (whole.empty()) return std::nullopt;
  return with_whole_weights(model, whole);
}

}  // namespace

LoadedModel::LoadedModel(run::Engine& engine, const arch::Model& given, std::span<const arch::ScaledAdapter> adapters)
    : engine_(engine), changed_(changed(given, adapters)), model_(changed_ ? *changed_ : given) {
  const arch::Model& model = model_;
  identities_ = {identity_of(adapters)};
  require_finite_vectors(model);
  // A CPU reads memory-mapped weights in place, unless their alignment in the file does not suit the kernels.
  const bool here = engine.device().reads_host_memory();
  int64_t there = 0, copied = 0;
  for (const auto& [name, w] : model.weights) {
    const bool stays =
        here && w.bytes.keeper() && reinterpret_cast<uintptr_t>(w.bytes.data()) % run::kParameterAlignment == 0;
    (stays ? there : copied) += w.bytes.size();
  }
  engine.require_memory(fmt::format("'{}'", model.name),
                        {{"memory-mapped weights", there, true}, {"copies of weights for the device", copied}});
  uploads_ = std::make_shared<run::ParameterUploads>(engine.device(), engine.threads());
  for (const auto& [name, w] : model.weights) weights_[name] = uploads_->add(w.type, w.bytes.data(), w.bytes.keeper());
  uploads_->begin();
  for (const auto& [name, change] : combined_changes(engine, model, adapters)) {
    graph::LowRank& low_rank = adapted_.emplace_back();
    low_rank.weight = name;
    low_rank.rank = change.rank();
    low_rank.rows = is_looked_up(*model.find(name));
    low_rank.gain = !change.gain.empty();
    hold_change(name, change, graph::low_rank_rows(model.find(name)->shape, low_rank.rows));
  }
}

LoadedModel::LoadedModel(run::Engine& engine, const arch::Model& model, std::span<const arch::AdapterSet> sets)
    : LoadedModel(engine, model) {
  LUMEN_CHECK(!sets.empty());
  identities_.clear();
  for (const arch::AdapterSet& set : sets) {
    for (const arch::ScaledAdapter& s : set) require_scale(s);
    identities_.push_back(identity_of(set));
  }
  for (const auto& [name, change] : stacked_changes(engine, model, sets)) {
    graph::TextLowRank& low_rank = adapted_by_text_.emplace_back();
    low_rank.weight = name;
    low_rank.rank = change.rank();
    low_rank.rows = is_looked_up(*model.find(name));
    low_rank.gain = !change.gain.empty();
    low_rank.slots = change.slots;
    const graph::Shape& b = change.b.type.shape;
    hold_change(name, change, {b[0], b[1]});
  }
}

const std::map<std::string, run::DeviceTensorRef>& LoadedModel::weights() const {
  uploads_->wait();
  return weights_;
}

int64_t LoadedModel::weight_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : weights_) bytes += tensor->bytes();
  return bytes;
}

void LoadedModel::hold_change(const std::string& name, const arch::WeightChange& change, const graph::Shape& rows) {
  const auto hold = [&](const std::string& as, const arch::Weight& w) {
    weights_[as] = run::DeviceTensor::parameter(engine_.device(), w.type, w.bytes.data(), w.bytes.keeper());
  };
  hold(graph::low_rank_a(name), change.a);
  hold(graph::low_rank_b(name), change.b);
  if (!change.gain.empty()) hold(graph::low_rank_gain(name), arch::f32_weight(rows, change.gain));
}

void LoadedModel::read_pictures() {
  for (const char* step : {"step_seeing", "step_many_seeing"})
    if (!model_.family->has_function(step))
      throw user_error("'{}': the family '{}' reads no pictures", model_.name, model_.family->name());
  reads_pictures_ = true;
}

graph::Graph LoadedModel::function(const std::string& name) const {
  graph::Graph g = function_of(model_, name);
  const auto is_absent = [&](const auto& p) { return g.find_input(p.weight) < 0; };  // a function without logits
  if (!adapted_by_text_.empty()) {
    std::vector<graph::TextLowRank> parts = adapted_by_text_;
    std::erase_if(parts, is_absent);
    graph::inline_calls(g);
    graph::simplify(g);
    return graph::add_low_rank_by_text(std::move(g), parts);
  }
  std::vector<graph::LowRank> parts = adapted_;
  std::erase_if(parts, is_absent);
  return graph::changed(std::move(g), {.low_rank = parts});
}

void check_tokens(const arch::Model& model, std::span<const text::TokenId> tokens) {
  const int64_t vocabulary = model.integer("vocab");
  for (const text::TokenId id : tokens) {
    if (id < 0 || id >= vocabulary)
      throw Error(Exit::user,
                  fmt::format("'{}': the input has token id {}, but the model's vocabulary has {} tokens", model.name,
                              id, vocabulary),
                  "the tokenizer was made for another model");
  }
}

void check_tokens(const LoadedModel& loaded, std::span<const text::TokenId> tokens) {
  if (!loaded.reads_pictures() || !has_pictures(tokens)) return check_tokens(loaded.model(), tokens);
  for (const text::TokenId& id : tokens) {
    if (!is_picture(id))
      check_tokens(loaded.model(), {&id, 1});
    else
      LUMEN_CHECK(loaded.pictures().find(id), "token {} is of a picture that no request holds", id);
  }
}

SessionOptions session_options(const arch::Model& model, SessionOptions options) {
  if (options.context == 0) options.context = model.integer("context");
  if (options.context < 1) throw usage_error("the context must hold at least one token");
  if (options.context > SessionOptions::kMostPositions)
    throw usage_error("a context of {} tokens: positions have 32 bits, so there are at most {}", options.context,
                      SessionOptions::kMostPositions);
  options.chunk = std::clamp<int64_t>(options.chunk, 1, options.context);
  const FormatLibrary& formats = model.family->library().formats();
  options.keys = cache_format(formats, options.keys ? options.keys : held_cache(model, arch::kCacheKeys));
  options.values = cache_format(formats, options.values ? options.values : held_cache(model, arch::kCacheValues));
  return options;
}

std::vector<int64_t> session_widths(const SessionOptions& options) {
  std::vector<int64_t> widths = {options.chunk};
  while (widths.back() / kWidthStep >= kNarrowest) widths.push_back(widths.back() / kWidthStep);
  if (widths.back() > 1) widths.push_back(1);
  return widths;
}

std::vector<int64_t> wide_widths(const SessionOptions& options, int64_t most) {
  std::vector<int64_t> widths = {std::min(kNarrowest, widest_step(options))};
  while (widths.back() < most && widths.back() < options.chunk)
    widths.push_back(std::min(2 * widths.back(), widest_step(options)));
  return widths;
}

Session::Session(const LoadedModel& loaded, SessionOptions options)
    : loaded_(loaded), options_(session_options(loaded.model(), std::move(options))) {
  StepPlan plan = plan_step(loaded, options_);
  graph_ = std::move(plan.graph);
  symbols_ = std::move(plan.symbols);
  narrowing_ = plan.narrowing;
  if (narrowing_) further_.emplace(loaded.engine(), loaded.model().family->library(), *narrowing_);
  recurrent_ = plan.recurrent;
  if (plan.window > 0) near_.emplace(plan.window, widest_step(options_));
  run::CompileOptions compile = step_options(loaded, graph_, options_);
  compile.symbols = symbols_;
  cache_bytes_ = state_bytes(graph_, compile);
  require_session(loaded, cache_bytes_, 0, options_);
  position_in_ = std::make_shared<run::DeviceTensor>(loaded.engine().device(), graph::Type{{}, {Scalar::i32, nullptr}});
  logits_.resize(loaded.model().integer("vocab"));
}

FormatRef cache_format_of(std::string_view state, const SessionOptions& session) {
  const FormatRef& format = state.ends_with("keys") ? session.keys : session.values;
  return format && arch::is_plain(*format, Scalar::f32) ? nullptr : format;
}

run::CompileOptions step_options(const LoadedModel& loaded, const graph::Graph& step, const SessionOptions& session) {
  run::CompileOptions options = step_options(loaded.model(), step, session);
  // Other kernels would only be slower on GPUs, where ManyLimits::fixed keeps results the same.
  options.invariant &= loaded.engine().device().machine().kind == machine::Kind::cpu;
  return options;
}

run::CompileOptions step_options(const arch::Model& model, const graph::Graph& step, const SessionOptions& session) {
  run::CompileOptions options;
  options.assignments = stored_formats(model);
  options.exact = session.exact;
  options.invariant = session.invariant;
  // Errors of rounding would add up in recurrent states, which stay in f32.
  const std::vector<std::string> recurrent = recurrent_states(step);
  for (const graph::ValueId v : step.inputs()) {
    const graph::Node& n = step[v];
    if (n.attributes.role != graph::Role::state || std::ranges::count(recurrent, n.attributes.name) > 0) continue;
    const FormatRef format = cache_format_of(n.attributes.name, session);
    if (!format) continue;
    if (const graph::Dim& width = n.type.shape.back(); width.is_number() && width.number() % format->block != 0)
      throw Error(Exit::user,
                  fmt::format("a KV cache cannot have format '{}': heads of {} numbers do not divide into its blocks "
                              "of {}",
                              format->name, width.number(), format->block),
                  "choose a format with shorter blocks for --cache-type-k or --cache-type-v");
    graph::FormatAssignment a;
    a.what = graph::FormatAssignment::What::stored;
    a.value = n.attributes.name;
    a.format = format;
    options.assignments.push_back(std::move(a));
  }
  return options;
}

Session::Width Session::compiled(int64_t tokens, int64_t rows) {
  run::CompileOptions options = step_options(loaded_, graph_, options_);
  options.symbols = symbols_;
  options.symbols["T"] = tokens;
  options.symbols["R"] = rows;
  Width width;
  width.tokens = tokens;
  width.rows = rows;
  width.program = loaded_.engine().compile(graph_, options);
  work_bytes_ += width.program->arena_bytes();
  require_session(loaded_, cache_bytes_, work_bytes_, options_, !states_.empty());
  return width;
}

void Session::bind(Width& width) {
  run::Engine& engine = loaded_.engine();
  for (const std::string& name : width.program->input_names()) {
    const graph::Type type = width.program->input_type(name);
    run::DeviceTensorRef tensor;
    if (const auto w = loaded_.weights().find(name); w != loaded_.weights().end()) {
      tensor = w->second;
    } else if (name == "tokens") {
      tensor = width.tokens_in = std::make_shared<run::DeviceTensor>(engine.device(), type);
    } else if (name == "rows" || name == Narrowing::kAsked || name == Narrowing::kScales) {
      tensor = std::make_shared<run::DeviceTensor>(engine.device(), type);
      (name == "rows" ? width.rows_in : name == Narrowing::kAsked ? width.asked_in : width.scales_in) = Handed(tensor);
    } else if (name == kPictures || name == kSeen || name == kAt) {
      tensor = std::make_shared<run::DeviceTensor>(engine.device(), type);
      width.seen_in[name] = Handed(tensor);
    } else if (name == "position") {
      tensor = position_in_;
    } else if (name == kCount) {
      if (!count_in_) count_in_ = std::make_shared<run::DeviceTensor>(engine.device(), type);
      tensor = count_in_;
    } else if (name == "place" || name == "near_positions") {
      auto& shared = name == "place" ? place_in_ : near_positions_in_;
      if (!shared) shared = std::make_shared<run::DeviceTensor>(engine.device(), type);
      tensor = shared;
    } else {
      auto& state = states_[name];
      if (!state) state = std::make_shared<run::DeviceTensor>(engine.device(), type, run::Pages::small);
      tensor = state;
    }
    width.program->bind(name, tensor);
  }
}

std::vector<double> Session::largest_kept(std::string_view ending) const {
  std::vector<double> out;
  for (const auto& [name, state] : states_) {
    if (!name.ends_with(ending)) continue;
    const graph::Type& type = state->type();
    if (type.element != graph::Element{} || type.shape.empty())
      throw user_error("'{}': '{}' is not held in f32, layer by layer", loaded_.model().name, name);
    std::vector<float> held(graph::byte_size(type) / sizeof(float));
    state->download(held.data(), state->bytes());
    const int64_t layers = type.shape[0].number(), each = std::ssize(held) / layers;
    for (int64_t layer = 0; layer < layers; ++layer) {
      double largest = 0;
      for (const float x : std::span(held).subspan(layer * each, each))
        largest = std::max<double>(largest, std::abs(x));
      out.push_back(largest);
    }
  }
  return out;
}

void Session::run(Width& width, std::span<const text::TokenId> tokens, const Asked& asked) {
  // Short chunks are padded; the cache entries of the padding, after the sequence, are overwritten before they can be
  // read, and `count` keeps the padding out of recurrent states.
  std::vector<int32_t> ids(width.tokens, 0);
  std::copy(tokens.begin(), tokens.end(), ids.begin());
  if (loaded_.reads_pictures()) {
    places_.shorten(position_);
    places_.extend(loaded_.pictures(), tokens, positions_by_grid(loaded_.model()));
    SeenRows seen(loaded_, width.tokens);
    for (size_t i = 0; i < tokens.size(); ++i) ids[i] = seen.put(i, tokens[i], places_.at(position_ + i));
    seen.hand_over(width.seen_in);
  }
  width.tokens_in->upload(ids.data(), width.tokens_in->bytes());
  // The last row, or all rows; those of the padding repeat the last.
  std::vector<int32_t> rows(width.rows, tokens.size() - 1);
  for (size_t i = 0; width.rows > 1 && i < tokens.size(); ++i) rows[i] = i;
  width.rows_in.put(rows);
  if (narrowing_) {
    const int64_t each = narrowing_->asked();
    std::vector<int32_t> wanted(width.rows * each);
    std::vector<float> scales(width.rows, 1);
    narrowing_->ask(asked, std::span(wanted).first(each), scales.data());
    width.asked_in.put(wanted);
    width.scales_in.put(scales);
  }
  const int32_t position = position_;
  position_in_->upload(&position, sizeof position);
  const int32_t count = tokens.size();
  if (count_in_) count_in_->upload(&count, sizeof count);
  if (near_) {
    const int32_t place = near_->put(position_, tokens.size(), width.tokens);
    place_in_->upload(&place, sizeof place);
    near_positions_in_->upload(near_->positions().data(), near_positions_in_->bytes());
  }
  width.program->run();
  position_ += tokens.size();
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
}

Session::Width& Session::width(int64_t tokens, int64_t rows) {
  for (Width& w : widths_)
    if (w.tokens == tokens && w.rows == rows) return w;
  Width made = compiled(tokens, rows);
  bind(made);
  return widths_.emplace_back(std::move(made));
}

void Session::prepare(int64_t tokens) {
  if (!widths_.empty()) return;
  std::deque<Width> made;
  made.push_back(compiled(1, 1));
  if (const int64_t first = tokens_of_step(tokens); first > 1) made.push_back(compiled(first, 1));
  for (Width& w : made) bind(w);
  widths_ = std::move(made);
}

// Full chunks first; the rest in the narrowest compiled width that holds it, so that a short prompt does not pay for a
// full chunk. There are few widths, each compiled once. On a CPU a step that is little more than half full takes longer
// than a narrower step followed by another. Near the end of the context only widths that fit are used.
int64_t Session::tokens_of_step(int64_t left) const {
  int64_t tokens = options_.chunk;
  while (tokens / kWidthStep >= std::max(left, kNarrowest)) tokens /= kWidthStep;
  if (loaded_.engine().device().reads_host_memory() && 2 * tokens > 3 * left && tokens / kWidthStep >= kNarrowest)
    tokens /= kWidthStep;
  while (tokens >= kNarrowest && position_ + tokens > options_.context) tokens /= kWidthStep;
  if (left == 1 || tokens < 2 || position_ + tokens > options_.context) tokens = 1;
  return tokens;
}

void Session::check_room(int64_t count) const {
  if (position() + count <= options_.context) return;
  throw Error(
      Exit::user,
      fmt::format("the sequence needs {} tokens, but the context holds {}", position() + count, options_.context),
      "shorten the prompt, ask for fewer tokens (-n), or raise --ctx-size");
}

// Recomputes the cache entries that a rewind has lost, up to the end of the sequence.
void Session::read_again() {
  if (position_ == position()) return;
  const std::vector<text::TokenId> missing(tokens_.begin() + position_, tokens_.end());
  tokens_.resize(position_);
  (void)feed(missing);
}

// Appends tokens, in chunks if they are many. Returns the last step, which has the requested result.
Session::Width& Session::read(std::span<const text::TokenId> tokens, const Asked& asked) {
  LUMEN_CHECK(!tokens.empty());
  check_tokens(loaded_, tokens);
  check_room(tokens.size());
  read_again();
  const bool is_prompt = tokens.size() > 1;
  if (is_prompt) mark();
  Width* last = nullptr;
  while (!tokens.empty()) {
    Width& step = width(tokens_of_step(tokens.size()), 1);
    const size_t count = std::min<size_t>(tokens.size(), step.tokens);
    run(step, tokens.first(count), asked);
    tokens = tokens.subspan(count);
    last = &step;
    if (is_prompt) mark();
  }
  return *last;
}

// The logits of the first row.
std::span<const float> Session::fetch(const Width& width) {
  const size_t vocab = loaded_.model().integer("vocab");
  logits_.resize(vocab);
  width.program->result(arch::kResult)->download(logits_.data(), vocab * sizeof(float));
  require_finite(loaded_, logits_, "logits");
  return logits_;
}

std::span<const float> Session::feed(std::span<const text::TokenId> tokens) {
  return fetch(read(tokens, {}));
}

LogitRow Session::feed_row(std::span<const text::TokenId> tokens, const Asked& asked) {
  const Width& width = read(tokens, asked);
  if (!narrowing_ || width.rows != 1) return fetch(width);
  std::vector<float> row(narrowing_->width());
  width.program->result(Narrowing::kNarrowed)->download(row.data(), row.size() * sizeof(float));
  std::optional<Narrowed> narrowed = narrowing_->read(row, asked);
  if (!narrowed) return fetch(width);
  const auto whole = [this, &width](int64_t) {
    const std::span<const float> logits = fetch(width);
    return std::vector<float>(logits.begin(), logits.end());
  };
  return {std::move(*narrowed), std::make_shared<StepRows>(width.program->result(arch::kResult), *further_, whole), 0};
}

// Appends a few tokens at a time, and calls `see` after each step with the number of rows of logits that belong to
// tokens.
void Session::read_rows(std::span<const text::TokenId> tokens, const std::function<void(Width&, int64_t)>& see) {
  LUMEN_CHECK(!tokens.empty());
  check_tokens(loaded_, tokens);
  check_room(tokens.size());
  read_again();
  mark();  // some of these tokens may be drafts that are rejected
  while (!tokens.empty()) {
    // Few widths, so that few steps are compiled; single tokens at the end of the context.
    int64_t wide = wide_widths(options_, tokens.size()).back();
    if (tokens.size() == 1 || position_ + wide > options_.context) wide = 1;
    Width& w = width(wide, wide);
    const size_t count = std::min<size_t>(tokens.size(), wide);
    run(w, tokens.first(count));
    see(w, count);
    tokens = tokens.subspan(count);
  }
}

std::span<const float> Session::feed_all(std::span<const text::TokenId> tokens) {
  const size_t vocab = loaded_.model().integer("vocab");
  std::vector<float> all;
  read_rows(tokens, [&](const Width& w, int64_t count) {
    std::vector<float> rows(w.rows * vocab);
    w.program->result(arch::kResult)->download(rows.data(), rows.size() * sizeof(float));
    all.insert(all.end(), rows.begin(), rows.begin() + count * vocab);
  });
  logits_ = std::move(all);
  require_finite(loaded_, logits_, "logits");
  return logits_;
}

void Session::feed_on_device(std::span<const text::TokenId> tokens, bool last,
                             const std::function<void(const void*, int64_t)>& see) {
  const auto show = [&](Width& w, int64_t count) {
    require_finite_on_device(w);
    see(w.program->result(arch::kResult)->data(), count);
  };
  if (last) {
    show(read(tokens, {}), 1);
  } else {
    read_rows(tokens, show);
  }
}

// Only the sum of magnitudes is copied to the host: it is not finite if any logit is not finite. In that case, or if
// the sum overflows, all logits are checked.
void Session::require_finite_on_device(Width& w) {
  const run::DeviceTensorRef rows = w.program->result(arch::kResult);
  if (!w.sum) {
    graph::Graph g;
    g.name = "sum";
    graph::Builder build(g);
    const graph::ValueId sizes = build.unary(ScalarOp::abs_, build.input("rows", graph::Role::data, rows->type()));
    g.results = {build.reshape(build.reduce(sizes, graph::Reduction::sum, {0, 1}), {})};
    g.result_names = {"sum"};
    w.sum = loaded_.engine().compile(g, {});
  }
  w.sum->bind("rows", rows);
  w.sum->run();
  float sum = 0;
  w.sum->result("sum")->download(&sum, sizeof sum);
  if (std::isfinite(sum)) return;
  std::vector<float> values(rows->bytes() / sizeof(float));
  rows->download(values.data(), rows->bytes());
  require_finite(loaded_, values, "logits");
}

std::span<const float> Session::become(std::span<const text::TokenId> tokens) {
  LUMEN_CHECK(!tokens.empty());
  const auto [mine, theirs] = std::mismatch(tokens_.begin(), tokens_.end(), tokens.begin(), tokens.end());
  // The last token is always computed, because its logits are returned.
  const auto same = std::min<int64_t>(mine - tokens_.begin(), tokens.size() - 1);
  rewind(same);
  return feed(tokens.subspan(same));
}

void Session::shift(int64_t keep, int64_t drop) {
  LUMEN_CHECK(keep >= 0 && drop >= 0 && keep + drop <= position());
  const std::vector<text::TokenId> rest(tokens_.begin() + keep + drop, tokens_.end());
  rewind(keep);
  if (!rest.empty()) (void)feed(rest);
}

void Session::rewind(int64_t position) {
  LUMEN_CHECK(position >= 0 && position <= this->position());
  tokens_.resize(position);
  if (position >= position_) return;
  if (!recurrent_.empty()) {
    marks_.drop_behind(position);
    const StateMarks::Mark* const mark = marks_.before(position);
    position = mark ? mark->length : 0;
  }
  position_ = !near_ || near_->rewind(position) ? position : 0;
  if (recurrent_.empty() || states_.empty()) return;
  run::Device& device = loaded_.engine().device();
  marks_.drop_behind(position_);
  if (position_ > 0) return set_slot(device, recurrent(), 0, *marks_.before(position_)->bytes);
  clear_slot(device, recurrent(), 0);
}

RecurrentStates Session::recurrent() const {
  RecurrentStates states;
  for (const std::string& name : recurrent_)
    if (const auto at = states_.find(name); at != states_.end()) states.insert(*at);
  return states;
}

void Session::mark() {
  if (recurrent_.empty() || position_ == 0 || position_ != position() || marks_.has(position_)) return;
  marks_.add(position_, std::make_shared<const std::string>(copy_slot(loaded_.engine().device(), recurrent(), 0)));
}

std::string Session::explain(const run::Ceilings* ceilings) const {
  std::vector<const Width*> ordered;
  for (const Width& w : widths_) ordered.push_back(&w);
  std::sort(ordered.begin(), ordered.end(), [](const Width* a, const Width* b) {
    return std::pair(a->tokens, a->rows) > std::pair(b->tokens, b->rows);
  });
  std::string text;
  for (const Width* w : ordered)
    text += fmt::format("step of {} token{}\n{}", w->tokens, w->tokens == 1 ? "" : "s", w->program->explain(ceilings));
  return text;
}

void Session::forget_times() {
  for (const Width& w : widths_) w.program->forget_times();
}

}  // namespace lumen::model::infer
