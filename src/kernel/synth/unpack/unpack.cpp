#include "kernel/synth/unpack/unpack.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"
#include "base/ordinal.h"
#include "kernel/synth/unpack/routine.h"

namespace lumen::synth {

namespace {

constexpr size_t kSelectTable = 16;  // tables up to this size are chosen by selects, larger ones from memory

bool is_straight(const Routine& r) {
  if (!r.has_result) return false;
  for (const RoutineStmt& s : r.body)
    if (s.kind != RoutineStmt::Kind::set || r.variables[s.slot].extent != 0) return false;
  return true;
}

// Depends on i and constants alone.
bool is_of_place(const RoutineExpr& e) {
  using Kind = RoutineExpr::Kind;
  if (e.kind == Kind::variable) return e.slot == 0;
  return (e.kind == Kind::constant || e.kind == Kind::op) && std::ranges::all_of(e.args, is_of_place);
}

std::vector<int64_t> run_of(int64_t first, int count) {
  std::vector<int64_t> run(count);
  std::iota(run.begin(), run.end(), first);
  return run;
}

Lanes shrink(Lanes x) {
  const auto same = [&](const ScalarValue& v) { return v.real == x.known[0].real && v.integer == x.known[0].integer; };
  if (x.known.size() > 1 && std::ranges::all_of(x.known, same)) x.known.resize(1);
  return x;
}

}  // namespace

Unpack::Unpack(Builder& b, const Format& f, BufferId buffer, int64_t rows, int64_t columns, Expr start)
    : b_(b), format_(f), buffer_(buffer), columns_(columns), start_(start), layout_(blob_layout(f, rows, columns)) {
  straight_ = is_straight(f.decode);
}

bool Unpack::needs_rows() const {
  return format_.row_bytes > 0 || format_.tile_bytes > 0;
}

Expr Unpack::at(int64_t bytes) {
  return !start_.exists() ? b_.i64(bytes) : start_ + bytes;
}

Window Unpack::record_window(Level level, Expr number) {
  const int64_t bytes = record_bytes(format_, level);
  Expr base = at(layout_.section[ordinal(level)]);
  if (level != Level::tensor) base = base + number * bytes;
  return Window(b_, buffer_, base, bytes);
}

// The window of a record, with its first entries loaded here.
Window Unpack::loaded_record(Level level, Expr number) {
  Window window = record_window(level, number);
  for (const Field& f : format_.fields)
    for (int64_t i = 0; f.level == level && i < std::min<int64_t>(f.count, 8); ++i) load_field(window, f, {{0, i}});
  return window;
}

void Unpack::enter_tensor() {
  tensor_entered_ = true;
  if (format_.tensor_bytes > 0) tensor_window_.emplace(loaded_record(Level::tensor, {}));
  for (size_t t = 0; t < format_.tables.size(); ++t)
    if (!straight_ || format_.tables[t].values.size() > kSelectTable) tables_[t] = lay_table(b_, format_.tables[t]);
}

void Unpack::enter_row(Expr row) {
  entered_row_ = row;
  if (format_.row_bytes > 0) row_window_.emplace(loaded_record(Level::row, row));
}

void Unpack::enter_block(Expr first, int64_t count) {
  enter_copied(first, count, buffer_, at(0) + first * format_.block_bytes);
}

void Unpack::enter_copied(Expr first, int64_t count, BufferId buffer, Expr byte, int64_t hidden) {
  block_ = first;
  block_count_ = count;
  block_buffer_ = buffer;
  block_base_ = byte;
  block_window_.emplace(b_, buffer, byte, count * format_.block_bytes - hidden);
  tile_windows_.clear();
  wide_codes_.clear();
  if (!tensor_entered_) {
    tensor_window_.reset();
    tables_.clear();
    if (format_.tensor_bytes > 0) tensor_window_.emplace(record_window(Level::tensor, {}));
  }
  if (format_.row_bytes > 0 && !entered_row_.exists()) row_window_.emplace(record_window(Level::row, row_of_block()));
}

Expr Unpack::row_of_block() {
  if (entered_row_.exists()) return entered_row_;
  return block_ / (columns_ / format_.block);
}

Unpack::Frame Unpack::frame_at(std::vector<int64_t> elements) const {
  for (const int64_t e : elements)
    LUMEN_CHECK(e >= 0 && e < block_count_ * format_.block, "element {} of {} blocks", e, block_count_);
  Frame frame{std::move(elements), {}};
  frame.variables.resize(std::max<size_t>(format_.decode.variables.size(), 1));
  Lanes i{Scalar::i32, {}, {}};
  if (!format_.decode.variables.empty()) i.type = format_.decode.variables[0].type;
  for (const int64_t e : frame.elements) i.known.push_back({0, e % format_.block});
  frame.variables[0] = shrink(i);
  return frame;
}

Expr Unpack::materialize(const Lanes& x, int lanes, bool splat) {
  if (!x.is_known()) return splat && b_.type(x.value).lanes == 1 ? b_.splat(x.value, lanes) : x.value;
  return x.known.size() == 1 ? b_.constant(x.known[0], {x.type, splat ? lanes : 1}) : b_.constants(x.known, x.type);
}

Lanes Unpack::apply(const RoutineExpr& e, const Frame& frame) {
  if (e.op == ScalarOp::cast_ && e.type == Scalar::f32)
    if (auto found = float_of_bytes(e.args[0], frame)) return *found;
  std::vector<Lanes> args;
  for (const RoutineExpr& a : e.args) args.push_back(evaluate(a, frame));
  const size_t typed = e.op == ScalarOp::select_ ? 1 : 0;
  if (std::ranges::all_of(args, &Lanes::is_known)) {
    const ScalarNode node{e.op, e.type};
    size_t width = 1;
    for (const Lanes& a : args) width = std::max(width, a.known.size());
    Lanes out{e.type, {}, {}};
    for (size_t l = 0; l < width; ++l) {
      ScalarValue v[3];
      for (size_t k = 0; k < args.size(); ++k) v[k] = args[k].lane(l);
      out.known.push_back(eval_scalar_op(node, args[typed].type, v[0], v[1], v[2]));
    }
    return shrink(out);
  }
  if (e.op == ScalarOp::select_ && args[0].is_known() && args[0].known.size() == 1)
    return args[args[0].known[0].integer ? 1 : 2];
  std::vector<Expr> values;
  int lanes = 1;
  for (const Lanes& a : args) {
    values.push_back(materialize(a, frame.lanes(), false));
    lanes = std::max(lanes, b_.type(values.back()).lanes);
  }
  for (Expr& v : values)
    if (b_.type(v).lanes < lanes) v = b_.splat(v, lanes);
  return {e.type, apply_op(b_, e, values), {}};
}

Expr Unpack::outer_record(Level level, int64_t element) {
  if (level == Level::tensor) return outer_record(level, {}, {});
  const Expr row = row_of_block();
  if (level == Level::row) return outer_record(level, row, {});
  return outer_record(level, row, (block_ - row * (columns_ / format_.block)) * format_.block + element);
}

Expr Unpack::outer_record(Level level, Expr row, Expr column) {
  const Expr section = at(layout_.section[ordinal(level)]);
  if (level == Level::tensor) return section;
  if (level == Level::row) return section + row * format_.row_bytes;
  const Expr tile = row / format_.tile_rows * layout_.tile_columns + column / format_.tile_columns;
  return section + tile * format_.tile_bytes;
}

Lanes Unpack::read_tile_lanes(const Field& field, int64_t entry, const Frame& frame) {
  // The lanes are in one row, in the tile of the first or the one after it.
  const Expr row = row_of_block();
  const Expr column = (block_ - row * (columns_ / format_.block)) * format_.block;
  const int lanes = frame.lanes();
  const int64_t position = frame.elements[0];
  bool beside = lanes <= format_.tile_columns;
  for (int l = 0; l < lanes; ++l) beside = beside && frame.elements[l] == position + l;
  if (!beside) {  // each lane by itself
    const auto one = [&](int l) {
      return read_field(b_, field, buffer_, outer_record(Level::tile, frame.elements[l]), b_.i64(entry));
    };
    return {field.type.register_type(), b_.join(lanes, one), {}};
  }
  const Expr first = column + position;
  const Expr tile = first / format_.tile_columns;
  const Expr tile_row = row / format_.tile_rows;
  const Expr number = tile_row * layout_.tile_columns + tile;
  Window window = record_window(Level::tile, number);
  const Expr here = load_field(window, field, {{0, entry}});
  const Scalar type = field.type.register_type();
  const bool aligned = format_.tile_columns % format_.block == 0 && format_.block % lanes == 0 && position % lanes == 0;
  if (lanes == 1 || aligned) return {type, here, {}};
  const Expr last = (first + (lanes - 1)) / format_.tile_columns;
  Window next_window = record_window(Level::tile, number + (last - tile));
  const Expr next = load_field(next_window, field, {{0, entry}});
  const Expr left = (tile + 1) * format_.tile_columns - first;
  const Expr inside = b_.lane_steps(lanes, 1) < b_.splat(left, lanes);
  return {type, select(inside, b_.splat(here, lanes), b_.splat(next, lanes)), {}};
}

std::vector<FieldPlace> Unpack::places_of(const Field& field, const Lanes& index, const Frame& frame) const {
  std::vector<FieldPlace> places;
  for (size_t l = 0; l < frame.elements.size(); ++l) {
    const int64_t block = field.level == Level::block ? frame.elements[l] / format_.block : 0;
    places.push_back({block * format_.block_bytes, index.lane(l).integer});
  }
  return places;
}

Lanes Unpack::read_field_lanes(const RoutineExpr& e, const Frame& frame) {
  const Field& field = format_.fields[e.slot];
  const Lanes index = evaluate(e.args[0], frame);
  const Scalar type = field.type.register_type();
  if (!index.is_known()) {  // an entry chosen by other bits: lane by lane
    const auto entry = [&](int l) {
      const bool outer = field.level != Level::block;
      const Expr record = outer ? outer_record(field.level, frame.elements[l])
                                : block_base_ + frame.elements[l] / format_.block * format_.block_bytes;
      const Expr i = cast(b_.type(index.value).lanes == 1 ? index.value : b_.extract(index.value, l), Scalar::i64);
      return read_field(b_, field, outer ? buffer_ : block_buffer_, record, i);
    };
    return {type, b_.join(frame.lanes(), entry), {}};
  }
  if (field.level == Level::tile) return read_tile_lanes(field, index.known[0].integer, frame);
  Window& window = field.level == Level::block ? *block_window_
                   : field.level == Level::row ? *row_window_
                                               : *tensor_window_;
  if (e.args[0].kind == RoutineExpr::Kind::variable)
    if (const Expr codes = wide_codes(e.slot, frame); codes.exists())
      return {type, decode_codes(b_, field.type, codes, machine_), {}};
  const std::vector<FieldPlace> places = places_of(field, index, frame);
  if (machine_ && converts_codes(field.type, frame.lanes(), *machine_)) {
    const Expr codes = load_codes(window, field, places, true, machine_);
    if (b_.type(codes).lanes == frame.lanes()) return {type, convert_codes(b_, field.type, codes, *machine_), {}};
  }
  return {type, load_field(window, field, places, machine_), {}};
}

// Codes of a run of lanes from one wide vector of bytes; no value if that is no gain.
Expr Unpack::wide_codes(int slot, const Frame& frame) {
  constexpr int64_t kWide = 64;
  const Field& field = format_.fields[slot];
  const int64_t first = frame.elements[0], lanes = frame.lanes();
  if (!machine_ || !machine_->find_row(fmt::format("bits8.u8x{}", kWide)) || field.type.bits >= 8 || lanes < 2)
    return {};
  if (field.level != Level::block || kWide % lanes != 0 || first % lanes != 0) return {};
  if (frame.elements != run_of(first, lanes)) return {};
  const int64_t chunk = first / kWide * kWide;
  if (chunk + kWide > block_count_ * format_.block) return {};
  const auto [found, fresh] = wide_codes_.try_emplace({slot, chunk});
  if (fresh) found->second = codes(slot, run_of(chunk, kWide), true, machine_);
  std::vector<int> mask;
  for (int64_t l = 0; l < lanes; ++l) mask.push_back(first - chunk + l);
  return cast(b_.shuffle({found->second}, mask), Scalar::u32);
}

// The buffer of a table, laid out at first use.
BufferId Unpack::table_buffer(int table) {
  const auto found = tables_.find(table);
  if (found != tables_.end()) return found->second;
  const BufferId buffer = lay_table(b_, format_.tables[table]);
  if (tensor_entered_) return buffer;  // laid out in an inner region: not cached
  return tables_[table] = buffer;
}

Expr Unpack::table_entry(const FormatTable& t, int slot, Expr index) {
  if (machine_ && is_float(t.type))
    if (const Expr found = permute_table(b_, *machine_, t, index); found.exists()) return found;
  if (t.values.size() > kSelectTable) return read_table(b_, t, table_buffer(slot), index);
  const int lanes = b_.type(index).lanes;
  const Scalar s = is_float(t.type) ? Scalar::f32 : scalar_bits(t.type) >= 32 ? t.type : Scalar::i32;
  const VType entry_type{s, lanes};
  std::vector<Expr> level;
  for (const double x : t.values)
    level.push_back(is_float(s) ? b_.real(x, entry_type) : b_.integer(static_cast<int64_t>(x), entry_type));
  return choose(index, std::move(level));
}

bool Unpack::tells_lanes_apart(const RoutineExpr& e, const Frame& frame, std::vector<std::vector<int64_t>>* what) {
  using Kind = RoutineExpr::Kind;
  if (e.kind == Kind::variable && e.slot != 0) return false;
  if (e.kind == Kind::element || e.kind == Kind::source) return false;
  if (e.kind == Kind::field && format_.fields[e.slot].level == Level::tile) return false;  // may end inside a block
  if (!is_of_place(e))
    return std::ranges::all_of(e.args, [&](const RoutineExpr& a) { return tells_lanes_apart(a, frame, what); });
  const Lanes x = evaluate(e, frame);
  for (size_t l = 0; l < what->size(); ++l) (*what)[l].push_back(x.lane(l).integer);
  return !is_float(e.type);
}

// Entries of a table in memory where runs of lanes share an index: each is read once and then shuffled.
std::optional<Lanes> Unpack::read_table_once(const RoutineExpr& e, const Frame& frame) {
  const size_t lanes = frame.elements.size();
  if (lanes < 4 || format_.tables[e.slot].values.size() <= kSelectTable || is_of_place(e.args[0])) return std::nullopt;
  std::vector<std::vector<int64_t>> what;
  for (const int64_t element : frame.elements) what.push_back({element / format_.block});
  if (!tells_lanes_apart(e.args[0], frame, &what)) return std::nullopt;
  std::map<std::vector<int64_t>, int> seen;
  std::vector<int64_t> elements;
  std::vector<int> mask;
  for (size_t l = 0; l < lanes; ++l) {
    const auto [found, fresh] = seen.try_emplace(what[l], std::ssize(elements));
    if (fresh) elements.push_back(frame.elements[l]);
    mask.push_back(found->second);
  }
  if (elements.size() < 2 || elements.size() > lanes / 2) return std::nullopt;
  while (!std::has_single_bit(elements.size())) elements.push_back(elements.back());
  const Frame fewer = frame_at(std::move(elements));
  const Lanes entries = read_table_lanes(e, fewer);
  if (entries.is_known()) return std::nullopt;
  if (b_.type(entries.value).lanes == 1) return entries;
  return Lanes{e.type, b_.shuffle({entries.value}, mask), {}};
}

Lanes Unpack::read_table_lanes(const RoutineExpr& e, const Frame& frame) {
  const FormatTable& t = format_.tables[e.slot];
  if (const auto found = read_table_once(e, frame)) return *found;
  const Lanes index = evaluate(e.args[0], frame);
  if (!index.is_known()) return {e.type, cast(table_entry(t, e.slot, index.value), e.type), {}};
  Lanes out{e.type, {}, {}};
  for (const ScalarValue& i : index.known) {
    LUMEN_CHECK(i.integer >= 0 && i.integer < std::ssize(t.values), "entry {} of table {}", i.integer, t.name);
    const double x = t.values[i.integer];
    out.known.push_back(is_float(e.type) ? ScalarValue{x, 0} : ScalarValue{0, static_cast<int64_t>(x)});
  }
  return shrink(out);
}

Lanes Unpack::evaluate(const RoutineExpr& e, const Frame& frame) {
  using Kind = RoutineExpr::Kind;
  switch (e.kind) {
    case Kind::constant:
      return {e.type, {}, {{e.real, e.integer}}};
    case Kind::variable:
      LUMEN_CHECK(frame.variables[e.slot].has_value(), "variable {} is read before it is set", e.slot);
      return *frame.variables[e.slot];
    case Kind::field:
      return read_field_lanes(e, frame);
    case Kind::table:
      return read_table_lanes(e, frame);
    case Kind::op:
      return apply(e, frame);
    case Kind::element:
    case Kind::extent:
    case Kind::source:
      break;
  }
  LUMEN_UNREACHABLE("expression kind {} in decode", ordinal(e.kind));
}

Expr Unpack::expression(const RoutineExpr& e, const std::vector<int64_t>& elements, bool splat) {
  return materialize(evaluate(e, frame_at(elements)), elements.size(), splat);
}

Expr Unpack::expression(const RoutineExpr& e, int64_t position, int lanes, bool splat) {
  return expression(e, run_of(position, lanes), splat);
}

Expr Unpack::codes(int field, const std::vector<int64_t>& elements, bool as_bytes, const machine::Machine* rows) {
  std::vector<FieldPlace> places;
  for (const int64_t e : elements) places.push_back(place_in_blocks(format_, e));
  return load_codes(*block_window_, format_.fields[field], places, as_bytes, rows);
}

Expr Unpack::codes(int field, int64_t position, int lanes, bool as_bytes) {
  return codes(field, run_of(position, lanes), as_bytes);
}

Expr Unpack::values(int64_t position, int lanes) {
  if (!straight_) {
    const Expr first = block_ * format_.block + position;
    return b_.join(lanes, [&](int l) { return value_at(first + l); });
  }
  Frame frame = frame_at(run_of(position, lanes));
  for (const RoutineStmt& s : format_.decode.body) {
    Lanes v = evaluate(s.value, frame);
    const Scalar to = format_.decode.variables[s.slot].type;
    LUMEN_CHECK(v.type == to, "a variable of {} set to {}", scalar_name(to), scalar_name(v.type));
    frame.variables[s.slot] = std::move(v);
  }
  return materialize(evaluate(format_.decode.result, frame), lanes, true);
}

Expr Unpack::value_at(Expr element) {
  const Expr block = element / format_.block;
  const Expr in_block = element % format_.block;
  const Expr row = element / columns_;
  const Expr column = element % columns_;
  RoutineHooks hooks;
  hooks.field = [&](int slot, Expr index) {
    const Field& field = format_.fields[slot];
    const Expr record =
        field.level == Level::block ? at(0) + block * format_.block_bytes : outer_record(field.level, row, column);
    return read_field(b_, field, buffer_, record, index);
  };
  hooks.table = [&](int slot, Expr index) {
    const FormatTable& t = format_.tables[slot];
    if (t.values.size() <= kSelectTable && !tables_.contains(slot)) return table_entry(t, slot, index);
    return read_table(b_, t, tables_.contains(slot) ? tables_.at(slot) : lay_table(b_, t), index);
  };
  RoutineRun run(b_, format_.decode, std::move(hooks));
  run.clear();
  run.set_variable(0, in_block);
  run.run();
  return run.result();
}

}  // namespace lumen::synth
