#include "model/infer/session/session_many.h"

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "base/ordinal.h"
#include "model/infer/session/forecast.h"
#include "model/infer/session/seen_rows.h"

namespace lumen::model::infer {
ManySession::ManySession(const LoadedModel& loaded, SessionOptions options, ManyLimits limits)
    : loaded_(loaded),
      options_(session_options(loaded.model(), std::move(options))),
      limits_(many_limits(loaded, options_, limits)),
      is_mixed_(limits_.fixed > 0 || mixes_prompts(loaded, options_)),
      plan_(plan_many(loaded, options_, limits_)) {
  caches_.push_back({PagePool(plan_.symbols.at("C"), options_.page), 0, "places", "pages"});
  if (plan_.window > 0)
    caches_.push_back({PagePool(plan_.symbols.at("W"), options_.page), plan_.window, "near_places", "near_pages"});
  run::CompileOptions compile = step_options(loaded, plan_.graph, options_);
  compile.symbols = plan_.symbols;
  compile.symbols["B"] = compile.symbols["T"] = compile.symbols["R"] = 1;
  cache_bytes_ = state_bytes(plan_.graph, compile);
  require_session(loaded, cache_bytes_, 0, options_);
  if (plan_.narrowing) further_.emplace(loaded.engine(), loaded.model().family->library(), *plan_.narrowing);
  sequences_.resize(limits_.sequences + limits_.kept);
  slots_.resize(limits_.sequences);
  is_mixed_ = is_mixed_ && !is_recurrent();
  if (limits_.fixed > 0 && is_recurrent())
    throw Error(
        Exit::usage,
        fmt::format("'{}' has recurrent states, so --batch-invariant holds on processors only", loaded.model().name),
        "use --device cpu, or leave the flag out");
}

// Shapes of steps: one token of each of several sequences; a chunk of one sequence; tokens of several sequences.
std::vector<ManySession::Shape> ManySession::shapes(const SessionOptions& options, const ManyLimits& limits,
                                                    bool mixed) {
  if (limits.fixed > 0) return {{limits.fixed, 1, false, limits.rows}};
  std::vector<Shape> shapes;
  // With drafts the number of rows changes from step to step, so sizes are closer together.
  const int64_t widest = std::max(limits.rows, limits.sequences), apart = widest > limits.sequences ? 2 : 4;
  for (int64_t rows = 1; rows < widest; rows *= apart) shapes.push_back({rows, 1});
  shapes.push_back({widest, 1});
  for (const int64_t tokens : session_widths(options))
    if (tokens > 1) shapes.push_back({1, tokens});
  for (const int64_t rows : {options.chunk / 4, options.chunk})
    if (mixed && rows > 0) shapes.push_back({rows, 1, false, limits.sequences});
  return shapes;
}

ManySession::Sequence& ManySession::sequence(int number) {
  LUMEN_CHECK(number >= 0 && number < std::ssize(sequences_) && sequences_[number].is_open, "no sequence {}", number);
  return sequences_[number];
}

int ManySession::open(int64_t set) {
  LUMEN_CHECK(set >= 0 && set < loaded_.sets(), "no adapter set {}", set);
  for (size_t i = 0; i < sequences_.size(); ++i) {
    Sequence& t = sequences_[i];
    if (t.is_open) continue;
    t.is_open = true;
    t.set = set;
    t.tables.clear();
    t.computed = 0;
    for (const Cache& c : caches_) t.tables.emplace_back(c.window);
    return i;
  }
  throw user_error("{} sequences are open, which is the maximum", sequences_.size());
}

void ManySession::close(int number) {
  (void)rewind(number, 0);
  sequence(number).is_open = false;
}

int64_t ManySession::share(int from, int to, int64_t count) {
  Sequence &source = sequence(from), &target = sequence(to);
  LUMEN_CHECK(source.set == target.set && target.tokens.empty() && count >= 0 && count <= length(from));
  for (size_t c = 0; c < caches_.size(); ++c) count = source.tables[c].kept(caches_[c].pool, count);
  if (is_recurrent() && count > 0) {
    if (source.computed > 0 && source.computed <= count) mark(from);
    const StateMarks::Mark* const last = source.marks.before(count);
    count = last ? last->length : 0;
    target.marks = source.marks;
    target.marks.drop_behind(count);
  }
  target.computed = count;
  if (count == 0) return 0;
  for (size_t c = 0; c < caches_.size(); ++c) {
    target.tables[c].share(caches_[c].pool, source.tables[c], count);
    target.tables[c].forget(caches_[c].pool, count);
  }
  target.tokens.assign(source.tokens.begin(), source.tokens.begin() + count);
  target.places = source.places;
  target.places.shorten(count);
  return count;
}

int64_t ManySession::rewind(int number, int64_t length) {
  Sequence& t = sequence(number);
  LUMEN_CHECK(length >= 0 && length <= std::ssize(t.tokens));
  for (size_t c = 0; c < caches_.size(); ++c) length = t.tables[c].kept(caches_[c].pool, length);
  if (is_recurrent() && length < t.computed) {
    const StateMarks::Mark* const last = t.marks.before(length);
    length = last ? last->length : 0;
    t.marks.drop_behind(length);
    drop_slot(t);
  }
  t.computed = std::min(t.computed, length);
  for (size_t c = 0; c < caches_.size(); ++c) t.tables[c].shorten(caches_[c].pool, length);
  t.tokens.resize(length);
  return length;
}

int64_t ManySession::shareable(int from, int64_t count) const {
  if (!is_recurrent()) return count;
  const Sequence& t = sequences_.at(from);
  if (t.computed <= count) return t.computed;
  const StateMarks::Mark* const last = t.marks.before(count);
  return last ? last->length : 0;
}

RecurrentStates ManySession::recurrent() const {
  RecurrentStates states;
  for (const std::string& name : plan_.recurrent) states[name] = states_.at(name);
  return states;
}

void ManySession::mark(int number) {
  Sequence& t = sequence(number);
  if (!is_recurrent() || t.computed == 0 || t.marks.has(t.computed)) return;
  t.marks.add(t.computed,
              std::make_shared<const std::string>(copy_slot(loaded_.engine().device(), recurrent(), t.slot)));
  limit_marks();
}

// Drops marks of the sequences that were used least recently, but those that are the only copy of a sequence's states.
void ManySession::limit_marks() {
  std::vector<Sequence*> by_use;
  int64_t bytes = 0;
  for (Sequence& t : sequences_) {
    if (t.marks.all().empty()) continue;
    by_use.push_back(&t);
    for (const StateMarks::Mark& m : t.marks.all()) bytes += std::ssize(*m.bytes);
  }
  std::ranges::sort(by_use, {}, [](const Sequence* t) { return t->used; });
  for (Sequence* t : by_use) {
    if (bytes <= kMostMarkBytes) return;
    for (const StateMarks::Mark& m : t->marks.all()) bytes -= std::ssize(*m.bytes);
    t->marks.keep_only(t->slot < 0 ? t->computed : -1);
    for (const StateMarks::Mark& m : t->marks.all()) bytes += std::ssize(*m.bytes);
  }
}

void ManySession::drop_slot(Sequence& t) {
  if (t.slot >= 0) slots_.at(t.slot) = false;
  t.slot = -1;
}

// A slot without a sequence. If there is none, the sequence that was used least recently gives up its own.
int64_t ManySession::free_slot(std::span<const Part> parts) {
  const auto find = [&] { return std::ranges::find(slots_, false) - slots_.begin(); };
  if (find() == std::ssize(slots_)) {
    int oldest = -1;
    for (int i = 0; i < std::ssize(sequences_); ++i) {
      const bool is_idle = std::ranges::none_of(parts, [&](const Part& p) { return p.sequence == i; });
      if (sequences_[i].slot < 0 || !is_idle) continue;
      if (oldest < 0 || sequences_[i].used < sequences_[oldest].used) oldest = i;
    }
    LUMEN_CHECK(oldest >= 0, "no slot for the states of a sequence");
    // Without a slot, this mark is the only copy: limit_marks() leaves it.
    Sequence& t = sequences_[oldest];
    if (!t.marks.has(t.computed))
      t.marks.add(t.computed,
                  std::make_shared<const std::string>(copy_slot(loaded_.engine().device(), recurrent(), t.slot)));
    drop_slot(t);
    limit_marks();
  }
  const int64_t slot = find();
  slots_[slot] = true;
  return slot;
}

// Gives each of these sequences a slot with its recurrent states; new sequences begin with zeros.
void ManySession::bring_states(std::span<const Part> parts) {
  run::Device& device = loaded_.engine().device();
  for (const Part& part : parts) {
    Sequence& t = sequence(part.sequence);
    t.used = steps_;
    if (!is_recurrent() || t.slot >= 0) continue;
    t.slot = free_slot(parts);
    if (t.computed == 0) {
      clear_slot(device, recurrent(), t.slot);
      continue;
    }
    const StateMarks::Mark* const last = t.marks.before(t.computed);
    LUMEN_CHECK(last && last->length == t.computed, "no states at {}", t.computed);
    set_slot(device, recurrent(), t.slot, *last->bytes);
  }
}

int64_t ManySession::missing_pages(int number, int64_t count) const {
  const Sequence& t = sequences_.at(number);
  return t.tables.at(0).missing(caches_[0].pool, t.computed, std::ssize(t.tokens) + count);
}

int64_t ManySession::taken_bytes() const {
  int64_t bytes = work_bytes_;
  for (const auto& [name, state] : states_) bytes += state->bytes();
  return bytes;
}

bool ManySession::is_of(size_t cache, const std::string& state) const {
  if (std::ranges::count(plan_.recurrent, state) > 0) return false;
  return (cache == 1) == (caches_.size() > 1 && state.starts_with(kNearStates));
}

// Rows of a page are contiguous within each layer and head.
void ManySession::copy_page(size_t cache, int32_t from, int32_t to) {
  for (const auto& [name, state] : states_) {
    if (!is_of(cache, name)) continue;
    const graph::Shape& shape = state->type().shape;
    const int64_t heads = shape[0].number() * shape[1].number(), pages = shape[2].number();
    for (int64_t h = 0; h < heads; ++h)
      state->copy_rows((h * pages + from) * options_.page, (h * pages + to) * options_.page, options_.page);
  }
}

// Visits the memory of a page, by state, layer and head: its rows, and the per-row fields of formats that store them
// separately.
void ManySession::each_part(int32_t page, const std::function<void(void*, int64_t)>& see) {
  if (states_.empty()) (void)program(shapes(options_, limits_, is_mixed_)[0]);  // allocates the states
  for (const auto& [name, state] : states_) {
    if (!is_of(0, name)) continue;
    const graph::Shape& shape = state->type().shape;
    const int64_t heads = shape[0].number() * shape[1].number(), pages = shape[2].number(), size = options_.page;
    const int64_t rows = heads * pages * size;
    const FormatRef& format = state->type().element.format;
    const BlobLayout layout = format ? blob_layout(*format, rows, shape[4].number()) : BlobLayout{};
    const int64_t stride = format ? layout.row_stride : state->bytes() / rows;
    char* const begin = static_cast<char*>(state->data());
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t row = (h * pages + page) * size;
      see(begin + row * stride, size * stride);
      if (format && format->row_bytes > 0)
        see(begin + layout.section[ordinal(Level::row)] + row * format->row_bytes, size * format->row_bytes);
    }
  }
}

int64_t ManySession::page_bytes() {
  int64_t all = 0;
  each_part(0, [&](const void*, int64_t bytes) { all += bytes; });
  return all;
}

std::string ManySession::copy_pages(int number, int64_t first, int64_t count) {
  std::string out;
  for (const int32_t page : sequences_.at(number).tables.at(0).pages().subspan(first, count)) {
    each_part(page, [&](const void* at, int64_t bytes) {
      out.resize(out.size() + bytes);
      loaded_.engine().device().copy_out(out.data() + out.size() - bytes, at, bytes);
    });
  }
  return out;
}

void ManySession::append_pages(int number, std::span<const text::TokenId> tokens, std::string_view bytes) {
  const Part whole{number, tokens};
  check({&whole, 1});
  Sequence& t = sequence(number);
  const auto now = std::ssize(t.tokens), count = std::ssize(tokens) / options_.page;
  LUMEN_CHECK(keeps_pages() && now % options_.page == 0 && std::ssize(tokens) == count * options_.page);
  LUMEN_CHECK(std::ssize(bytes) == count * page_bytes());
  t.tables[0].make_room(caches_[0].pool, now, now + std::ssize(tokens), [](int32_t, int32_t) {});
  size_t at = 0;
  for (const int32_t page : t.tables[0].pages().subspan(now / options_.page, count)) {
    each_part(page, [&](void* to, int64_t part) {
      loaded_.engine().device().copy_in(to, bytes.data() + at, part);
      at += part;
    });
  }
  if (loaded_.reads_pictures()) {
    t.places.shorten(now);
    t.places.extend(loaded_.pictures(), tokens, positions_by_grid(loaded_.model()));
  }
  t.tokens.insert(t.tokens.end(), tokens.begin(), tokens.end());
  t.computed = std::ssize(t.tokens);
}

int64_t ManySession::bytes_of_states() {
  if (states_.empty()) (void)program(shapes(options_, limits_, is_mixed_)[0]);
  int64_t all = 0;
  for (const auto& [name, state] : recurrent()) all += state->bytes() / limits_.sequences;
  return all;
}

void ManySession::set_states(int number, std::string bytes) {
  Sequence& t = sequence(number);
  LUMEN_CHECK(is_recurrent() && std::ssize(bytes) == bytes_of_states());
  drop_slot(t);
  t.marks.clear();
  t.marks.add(t.computed, std::make_shared<const std::string>(std::move(bytes)));
}

const StepPlan& ManySession::plan_for(Shape shape) {
  if (!shape.plain) return plan_;
  if (!plain_) plain_ = plan_many_plain(loaded_, options_, limits_);
  return *plain_;
}

// Whether none of these sequences has adapters although other sequences may: such a step skips all adapters.
bool ManySession::is_plain(std::span<const Part> parts) const {
  if (loaded_.sets() == 1) return false;
  const std::string none = arch::identity_of({});
  return std::ranges::all_of(parts, [&](const Part& p) { return loaded_.identity(set(p.sequence)) == none; });
}

ManySession::Program& ManySession::program(Shape shape) {
  for (Program& p : programs_)
    if (p.shape == shape) return p;
  const graph::Graph& graph = plan_for(shape).graph;
  run::Engine& engine = loaded_.engine();
  run::CompileOptions options = step_options(loaded_, graph, options_);
  options.symbols = plan_.symbols;
  options.symbols["B"] = shape.sequences;
  options.symbols["T"] = shape.tokens;
  options.symbols["R"] = shape.rows();
  Program p;
  p.shape = shape;
  p.program = engine.compile(graph, options);
  require_session(loaded_, cache_bytes_, work_bytes_ + p.program->arena_bytes(), options_, !states_.empty());
  work_bytes_ += p.program->arena_bytes();
  for (const std::string& name : p.program->input_names()) {
    const graph::Type type = p.program->input_type(name);
    run::DeviceTensorRef tensor;
    if (const auto weight = loaded_.weights().find(name); weight != loaded_.weights().end()) {
      tensor = weight->second;
    } else if (graph[graph.find_input(name)].attributes.role == graph::Role::state) {
      auto& state = states_[name];
      if (!state) state = std::make_shared<run::DeviceTensor>(engine.device(), type, run::Pages::small);
      tensor = state;
    } else {
      tensor = std::make_shared<run::DeviceTensor>(engine.device(), type);
      p.in[name] = Handed(tensor);
    }
    p.program->bind(name, tensor);
  }
  return programs_.emplace_back(std::move(p));
}

bool ManySession::prepare() {
  for (const Shape& shape : shapes(options_, limits_, is_mixed_)) {
    if (std::ranges::any_of(programs_, [&](const Program& p) { return p.shape == shape; })) continue;
    (void)program(shape);
    return true;
  }
  for (const Shape& shape : shapes(options_, limits_, is_mixed_))
    if (further_ && !shape.all && further_->prepare(shape.rows())) return true;
  return false;
}

// The narrowest compiled step for so many sequences and tokens.
ManySession::Shape ManySession::shape_for(int64_t sequences, int64_t tokens, bool mixed) const {
  std::optional<Shape> best;
  for (const Shape& s : shapes(options_, limits_, is_mixed_)) {
    if (s.sequences < sequences || s.tokens < tokens || (s.out > 0) != mixed) continue;
    if (!best || s.sequences * s.tokens < best->sequences * best->tokens) best = s;
  }
  LUMEN_CHECK(best.has_value(), "no step has {} tokens of {} sequences", tokens, sequences);
  return *best;
}

// Runs a step. Padding tokens are not written to the cache and their logits are not used. `apart`: each token is a row
// of its own and sees the earlier ones of its sequence, because a step writes the cache before it reads it; pages that
// have left the sliding window are freed when the sequence is settled. `all`: the logits of all tokens, not of each
// part's last one.
ManySession::Program& ManySession::run(Shape shape, std::span<const Part> parts, std::span<const Asked> asked,
                                       bool apart, bool all) {
  shape.plain = limits_.fixed == 0 && is_plain(parts);
  Program& p = program(shape);
  ++steps_;
  bring_states(parts);
  std::vector<Row> lines;
  for (const Part& part : parts) {
    const int64_t start = length(part.sequence), step = apart ? 1 : std::ssize(part.tokens);
    for (int64_t t = 0; t < std::ssize(part.tokens); t += step)
      lines.push_back({part.sequence, part.tokens.subspan(t, step), start + t});
  }
  const size_t wide = p.shape.tokens, count = p.shape.sequences * wide;
  LUMEN_CHECK(std::ssize(lines) <= p.shape.sequences);
  const size_t entries = plan_.symbols.at("K");
  std::vector<int32_t> ids(count, 0), at(count, 0), places(count), rows(p.shape.rows(), 0), sets(p.shape.sequences, 0);
  std::vector<int32_t> counts(p.shape.sequences, 0), slots(p.shape.sequences, -1);
  std::optional<SeenRows> seen;
  if (loaded_.reads_pictures()) {
    seen.emplace(loaded_, std::ssize(ids));
    for (const Part& part : parts) {
      Sequence& t = sequence(part.sequence);
      t.places.shorten(std::ssize(t.tokens));
      t.places.extend(loaded_.pictures(), part.tokens, positions_by_grid(loaded_.model()));
    }
  }
  for (size_t i = 0; i < lines.size(); ++i) {
    const int32_t start = lines[i].start;
    counts[i] = lines[i].tokens.size();
    slots[i] = sequence(lines[i].sequence).slot;
    sets[i] = sequence(lines[i].sequence).set;
    for (size_t t = 0; t < wide; ++t) {
      const size_t real = std::min(t, lines[i].tokens.size() - 1);
      ids[i * wide + t] = lines[i].tokens[real];
      at[i * wide + t] = start + real;
      if (seen)
        ids[i * wide + t] =
            seen->put(i * wide + t, lines[i].tokens[real], sequence(lines[i].sequence).places.at(start + real));
    }
    if (!shape.all && shape.out == 0) rows[i] = i * wide + lines[i].tokens.size() - 1;
  }
  if (shape.out > 0) {
    size_t line = 0, row = 0;
    for (const Part& part : parts) {
      for (size_t t = 0; all && t < part.tokens.size(); ++t) rows.at(row++) = line + t;
      line += part.tokens.size();
      if (!all && part.is_asked) rows.at(row++) = line - 1;
    }
  }
  if (shape.all)
    for (size_t t = 0; t < wide; ++t) rows[t] = t;
  const auto put = [&](const char* name, const std::vector<int32_t>& data) { p.in.at(name).put(data); };
  const int32_t size = options_.page;
  for (size_t c = 0; c < caches_.size(); ++c) {
    for (const Part& part : parts) {
      Sequence& t = sequence(part.sequence);
      const auto now = std::ssize(t.tokens), upto = now + std::ssize(part.tokens);
      t.tables[c].make_room(caches_[c].pool, now, upto, [&](int32_t from, int32_t to) { copy_page(c, from, to); });
    }
    std::fill(places.begin(), places.end(), -1);
    std::vector<int32_t> pages(p.shape.sequences * entries, 0);
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::span<const int32_t> own = sequence(lines[i].sequence).tables[c].pages();
      for (size_t k = 0; k < own.size(); ++k) pages[i * entries + k] = std::max(own[k], 0);
      for (size_t n = 0; n < lines[i].tokens.size(); ++n) {
        const int32_t position = at[i * wide + n];
        places[i * wide + n] = own[position / size] * size + position % size;
      }
    }
    put(caches_[c].places, places);
    put(caches_[c].pages, pages);
  }
  if (seen) seen->hand_over(p.in);
  put("tokens", ids);
  put("positions", at);
  put("rows", rows);
  if (p.in.contains(kCounts)) put(kCounts, counts);
  if (p.in.contains(kSlots)) put(kSlots, slots);
  if (p.in.contains(graph::kTextSets)) put(graph::kTextSets, sets);
  if (p.in.contains("length")) put("length", {static_cast<int32_t>(limits_.longest)});
  if (plan_.narrowing) {
    const int64_t each = plan_.narrowing->asked();
    std::vector<int32_t> wanted(rows.size() * each);
    std::vector<float> scales(rows.size(), 1);
    for (size_t i = 0; i < asked.size(); ++i)
      plan_.narrowing->ask(asked[i], std::span(wanted).subspan(i * each, each), &scales[i]);
    put(Narrowing::kAsked, wanted);
    p.in.at(Narrowing::kScales).put(scales);
  }
  p.program->run();
  for (const Part& part : parts) {
    Sequence& t = sequence(part.sequence);
    t.tokens.insert(t.tokens.end(), part.tokens.begin(), part.tokens.end());
    t.computed = std::ssize(t.tokens);
    if (part.tokens.size() > 1 && !shape.all) mark(part.sequence);
    for (size_t c = 0; !apart && c < caches_.size(); ++c) t.tables[c].forget(caches_[c].pool, t.tokens.size());
  }
  return p;
}

std::string ManySession::explain() const {
  std::string text;
  for (const Program& p : programs_)
    text +=
        fmt::format("step of {} sequence{}, {} token{} each\n{}", p.shape.sequences, p.shape.sequences == 1 ? "" : "s",
                    p.shape.tokens, p.shape.tokens == 1 ? "" : "s", p.program->explain(nullptr));
  return text;
}

}  // namespace lumen::model::infer
