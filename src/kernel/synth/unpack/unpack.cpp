#include "kernel/synth/unpack/unpack.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"
#include "kernel/synth/unpack/routine.h"

namespace lumen::synth {

using loop::BufferId;
using loop::ValueId;
using loop::VType;

namespace {

constexpr size_t kSelectTable = 16;    // tables up to this size are chosen by selects, larger ones from memory
constexpr size_t kPermutedTable = 64;  // by permutes of vectors, where the machine has them

bool is_straight(const Routine& r) {
  if (!r.has_result) return false;
  for (const RoutineStmt& s : r.body)
    if (s.kind != RoutineStmt::Kind::set || r.variables[s.slot].extent != 0) return false;
  return true;
}

Lanes known(Scalar type, ScalarValue x) {
  return {type, -1, {x}};
}

ScalarValue lane_of(const Lanes& x, size_t lane) {
  return x.known[x.known.size() == 1 ? 0 : lane];
}

std::vector<int64_t> run_of(int64_t first, int count) {
  std::vector<int64_t> run(static_cast<size_t>(count));
  std::iota(run.begin(), run.end(), first);
  return run;
}

Lanes shrink(Lanes x) {
  const auto same = [&](const ScalarValue& v) { return v.real == x.known[0].real && v.integer == x.known[0].integer; };
  if (x.known.size() > 1 && std::all_of(x.known.begin(), x.known.end(), same)) x.known.resize(1);
  return x;
}

}  // namespace

Unpack::Unpack(loop::Builder& b, const Format& f, BufferId buffer, int64_t rows, int64_t columns, ValueId start)
    : b_(b), format_(f), buffer_(buffer), columns_(columns), start_(start), layout_(blob_layout(f, rows, columns)) {
  straight_ = is_straight(f.decode);
}

bool Unpack::needs_rows() const {
  return format_.row_bytes > 0 || format_.tile_bytes > 0;
}

ValueId Unpack::at(int64_t bytes) {
  return start_ < 0 ? b_.i64(bytes) : b_.add(start_, b_.i64(bytes));
}

Window Unpack::record_window(Level level, ValueId number) {
  const int64_t bytes = level == Level::row    ? format_.row_bytes
                        : level == Level::tile ? format_.tile_bytes
                                               : format_.tensor_bytes;
  ValueId base = at(layout_.section[static_cast<int>(level)]);
  if (level != Level::tensor) base = b_.add(base, b_.mul(number, b_.i64(bytes)));
  return Window(b_, buffer_, base, bytes);
}

void Unpack::enter_tensor() {
  tensor_entered_ = true;
  if (format_.tensor_bytes > 0) {
    tensor_window_.emplace(record_window(Level::tensor, -1));
    for (const Field& f : format_.fields)
      for (int64_t i = 0; f.level == Level::tensor && i < std::min<int64_t>(f.count, 8); ++i)
        load_field(*tensor_window_, f, {{0, i}});
  }
  for (size_t t = 0; t < format_.tables.size(); ++t)
    if (!straight_ || format_.tables[t].values.size() > kSelectTable)
      tables_[static_cast<int>(t)] = lay_table(b_, format_.tables[t]);
}

void Unpack::enter_row(ValueId row) {
  entered_row_ = row;
  if (format_.row_bytes == 0) return;
  row_window_.emplace(record_window(Level::row, row));
  for (const Field& f : format_.fields)
    for (int64_t i = 0; f.level == Level::row && i < std::min<int64_t>(f.count, 8); ++i)
      load_field(*row_window_, f, {{0, i}});
}

void Unpack::enter_block(ValueId first, int64_t count) {
  enter_copied(first, count, buffer_, b_.add(at(0), b_.mul(first, b_.i64(format_.block_bytes))));
}

void Unpack::enter_copied(ValueId first, int64_t count, BufferId buffer, ValueId byte, int64_t hidden) {
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
    if (format_.tensor_bytes > 0) tensor_window_.emplace(record_window(Level::tensor, -1));
  }
  if (format_.row_bytes > 0 && entered_row_ < 0) row_window_.emplace(record_window(Level::row, row_of_block()));
}

ValueId Unpack::row_of_block() {
  if (entered_row_ >= 0) return entered_row_;
  return b_.op(ScalarOp::div_, block_, b_.i64(columns_ / format_.block));
}

Unpack::Frame Unpack::frame_at(std::vector<int64_t> elements) const {
  for (const int64_t e : elements)
    LUMEN_CHECK(e >= 0 && e < block_count_ * format_.block, "element {} of {} blocks", e, block_count_);
  Frame frame{std::move(elements), {}};
  frame.variables.resize(std::max<size_t>(format_.decode.variables.size(), 1));
  Lanes i{Scalar::i32, -1, {}};
  if (!format_.decode.variables.empty()) i.type = format_.decode.variables[0].type;
  for (const int64_t e : frame.elements) i.known.push_back({0, e % format_.block});
  frame.variables[0] = shrink(i);
  return frame;
}

ValueId Unpack::materialize(const Lanes& x, int lanes, bool splat) {
  if (!x.is_known()) return splat && b_.type(x.value).lanes == 1 ? b_.splat(x.value, lanes) : x.value;
  if (x.known.size() == 1) {
    const VType type{x.type, splat ? lanes : 1};
    return is_float(x.type) ? b_.real(x.known[0].real, type) : b_.integer(x.known[0].integer, type);
  }
  std::vector<double> reals;
  std::vector<int64_t> integers;
  for (const ScalarValue& v : x.known) {
    reals.push_back(v.real);
    integers.push_back(v.integer);
  }
  return is_float(x.type) ? b_.lanes_real(std::move(reals), x.type) : b_.lanes_integer(std::move(integers), x.type);
}

Lanes Unpack::apply(const RoutineExpr& e, const Frame& frame) {
  std::vector<Lanes> args;
  for (const RoutineExpr& a : e.args) args.push_back(evaluate(a, frame));
  const bool all_known = std::all_of(args.begin(), args.end(), [](const Lanes& a) { return a.is_known(); });
  const size_t typed = e.op == ScalarOp::select_ ? 1 : 0;
  if (all_known) {
    ScalarNode node{};
    node.op = e.op;
    node.type = e.type;
    size_t width = 1;
    for (const Lanes& a : args) width = std::max(width, a.known.size());
    Lanes out{e.type, -1, {}};
    for (size_t l = 0; l < width; ++l) {
      ScalarValue v[3];
      for (size_t k = 0; k < args.size(); ++k) v[k] = lane_of(args[k], l);
      out.known.push_back(eval_scalar_op(node, args[typed].type, v[0], v[1], v[2]));
    }
    return shrink(out);
  }
  if (e.op == ScalarOp::select_ && args[0].is_known() && args[0].known.size() == 1)
    return args[args[0].known[0].integer ? 1 : 2];
  std::vector<ValueId> values;
  int lanes = 1;
  for (const Lanes& a : args) {
    values.push_back(materialize(a, frame.lanes(), false));
    lanes = std::max(lanes, b_.type(values.back()).lanes);
  }
  for (ValueId& v : values)
    if (b_.type(v).lanes < lanes) v = b_.splat(v, lanes);
  return {e.type, apply_op(b_, e, values), {}};
}

ValueId Unpack::outer_record(Level level, int64_t element) {
  const ValueId section = at(layout_.section[static_cast<int>(level)]);
  if (level == Level::tensor) return section;
  const ValueId row = row_of_block();
  if (level == Level::row) return b_.add(section, b_.mul(row, b_.i64(format_.row_bytes)));
  const ValueId in_row = b_.op(ScalarOp::sub_, block_, b_.mul(row, b_.i64(columns_ / format_.block)));
  const ValueId column = b_.add(b_.mul(in_row, b_.i64(format_.block)), b_.i64(element));
  const ValueId tile =
      b_.add(b_.mul(b_.op(ScalarOp::div_, row, b_.i64(format_.tile_rows)), b_.i64(layout_.tile_columns)),
             b_.op(ScalarOp::div_, column, b_.i64(format_.tile_columns)));
  return b_.add(section, b_.mul(tile, b_.i64(format_.tile_bytes)));
}

Lanes Unpack::read_tile_lanes(const Field& field, int64_t entry, const Frame& frame) {
  // The lanes lie in one row, in the tile of the first or the one after it.
  const ValueId row = row_of_block();
  const ValueId in_row = b_.op(ScalarOp::sub_, block_, b_.mul(row, b_.i64(columns_ / format_.block)));
  const ValueId column = b_.mul(in_row, b_.i64(format_.block));
  const int lanes = frame.lanes();
  const int64_t position = frame.elements[0];
  bool beside = lanes <= format_.tile_columns;
  for (int l = 0; l < lanes; ++l) beside = beside && frame.elements[l] == position + l;
  if (!beside) {  // each lane by itself
    ValueId all = -1;
    for (int l = 0; l < lanes; ++l) {
      const ValueId one = read_field(b_, field, buffer_, outer_record(Level::tile, frame.elements[l]), b_.i64(entry));
      all = l == 0 ? (lanes == 1 ? one : b_.splat(one, lanes)) : b_.insert(all, one, l);
    }
    return {field.type.register_type(), all, {}};
  }
  const ValueId first = b_.add(column, b_.i64(position));
  const ValueId tile = b_.op(ScalarOp::div_, first, b_.i64(format_.tile_columns));
  const ValueId tile_row = b_.op(ScalarOp::div_, row, b_.i64(format_.tile_rows));
  const ValueId number = b_.add(b_.mul(tile_row, b_.i64(layout_.tile_columns)), tile);
  Window window = record_window(Level::tile, number);
  const ValueId here = load_field(window, field, {{0, entry}});
  const Scalar type = field.type.register_type();
  const bool aligned = format_.tile_columns % format_.block == 0 && format_.block % lanes == 0 && position % lanes == 0;
  if (lanes == 1 || aligned) return {type, here, {}};
  const ValueId last = b_.op(ScalarOp::div_, b_.add(first, b_.i64(lanes - 1)), b_.i64(format_.tile_columns));
  Window next_window = record_window(Level::tile, b_.add(number, b_.op(ScalarOp::sub_, last, tile)));
  const ValueId next = load_field(next_window, field, {{0, entry}});
  std::vector<int64_t> iota;
  for (int l = 0; l < lanes; ++l) iota.push_back(l);
  const ValueId left = b_.op(ScalarOp::sub_, b_.mul(b_.add(tile, b_.i64(1)), b_.i64(format_.tile_columns)), first);
  const ValueId inside = b_.op(ScalarOp::lt_, b_.lanes_integer(iota, Scalar::i64), b_.splat(left, lanes));
  return {type, b_.op(ScalarOp::select_, inside, b_.splat(here, lanes), b_.splat(next, lanes)), {}};
}

std::vector<FieldPlace> Unpack::places_of(const Field& field, const Lanes& index, const Frame& frame) const {
  std::vector<FieldPlace> places;
  for (size_t l = 0; l < frame.elements.size(); ++l) {
    const int64_t block = field.level == Level::block ? frame.elements[l] / format_.block : 0;
    places.push_back({block * format_.block_bytes, lane_of(index, l).integer});
  }
  return places;
}

Lanes Unpack::read_field_lanes(const RoutineExpr& e, const Frame& frame) {
  const Field& field = format_.fields[e.slot];
  const Lanes index = evaluate(e.args[0], frame);
  const Scalar type = field.type.register_type();
  if (!index.is_known()) {  // an entry chosen by other bits: lane by lane
    ValueId all = -1;
    for (int l = 0; l < frame.lanes(); ++l) {
      const bool outer = field.level != Level::block;
      const ValueId record = outer
                                 ? outer_record(field.level, frame.elements[l])
                                 : b_.add(block_base_, b_.i64(frame.elements[l] / format_.block * format_.block_bytes));
      const ValueId i = b_.convert(ScalarOp::cast_, Scalar::i64,
                                   b_.type(index.value).lanes == 1 ? index.value : b_.extract(index.value, l));
      const ValueId one = read_field(b_, field, outer ? buffer_ : block_buffer_, record, i);
      all = l == 0 ? b_.splat(one, frame.lanes()) : b_.insert(all, one, l);
    }
    return {type, all, {}};
  }
  if (field.level == Level::tile) return read_tile_lanes(field, index.known[0].integer, frame);
  Window& window = field.level == Level::block ? *block_window_
                   : field.level == Level::row ? *row_window_
                                               : *tensor_window_;
  if (e.args[0].kind == RoutineExpr::Kind::variable)
    if (const ValueId codes = wide_codes(e.slot, frame); codes >= 0)
      return {type, decode_codes(b_, field.type, codes), {}};
  const std::vector<FieldPlace> places = places_of(field, index, frame);
  if (machine_ && converts_codes(field.type, frame.lanes(), *machine_)) {
    const ValueId codes = load_codes(window, field, places, true, machine_);
    if (b_.type(codes).lanes == frame.lanes()) return {type, convert_codes(b_, field.type, codes, *machine_), {}};
  }
  return {type, load_field(window, field, places), {}};
}

// Codes of a run of lanes out of a vector of bytes that is taken from memory at once; -1 where that is no gain.
ValueId Unpack::wide_codes(int slot, const Frame& frame) {
  constexpr int64_t kWide = 64;
  const Field& field = format_.fields[static_cast<size_t>(slot)];
  const int64_t first = frame.elements[0], lanes = frame.lanes();
  if (!machine_ || !machine_->find_row(fmt::format("bits8.u8x{}", kWide)) || field.type.bits >= 8 || lanes < 2)
    return -1;
  if (field.level != Level::block || kWide % lanes != 0 || first % lanes != 0) return -1;
  for (int64_t l = 0; l < lanes; ++l)
    if (frame.elements[static_cast<size_t>(l)] != first + l) return -1;
  const int64_t chunk = first / kWide * kWide;
  if (chunk + kWide > block_count_ * format_.block) return -1;
  const auto [found, fresh] = wide_codes_.try_emplace({slot, chunk}, -1);
  if (fresh) found->second = codes(slot, run_of(chunk, kWide), true, machine_);
  std::vector<int> mask;
  for (int64_t l = 0; l < lanes; ++l) mask.push_back(static_cast<int>(first - chunk + l));
  return b_.convert(ScalarOp::cast_, Scalar::u32, b_.shuffle({found->second}, mask));
}

// Entries by the machine's look-up of words; -1 without one.
ValueId Unpack::look_up_floats(const FormatTable& t, ValueId index) {
  const int lanes = b_.type(index).lanes;
  const std::string row = fmt::format("lookup{}.u32x{}", lanes, lanes);
  if (!machine_ || lanes < 2 || !is_float(t.type) || !machine_->find_row(row)) return -1;
  const VType words{Scalar::u32, lanes};
  index = b_.convert(ScalarOp::cast_, Scalar::u32, index);
  std::vector<ValueId> level;
  for (size_t first = 0; first < t.values.size(); first += static_cast<size_t>(lanes)) {
    std::vector<int64_t> entries;
    for (size_t i = first; i < first + static_cast<size_t>(lanes); ++i)
      entries.push_back(std::bit_cast<uint32_t>(static_cast<float>(t.values[std::min(i, t.values.size() - 1)])));
    level.push_back(b_.inst(row, words, {b_.lanes_integer(std::move(entries), Scalar::u32), index}));
  }
  for (int64_t bit = lanes; level.size() > 1; bit *= 2) {
    const ValueId one = b_.op(ScalarOp::and_, index, b_.integer(bit, words));
    const ValueId set = b_.op(ScalarOp::ne_, one, b_.integer(0, words));
    std::vector<ValueId> next;
    for (size_t k = 0; k < level.size(); k += 2)
      next.push_back(k + 1 == level.size() ? level[k] : b_.op(ScalarOp::select_, set, level[k + 1], level[k]));
    level = std::move(next);
  }
  return b_.convert(ScalarOp::bitcast_, Scalar::f32, level[0]);
}

BufferId Unpack::table_buffer(int table) {
  const auto found = tables_.find(table);
  if (found != tables_.end()) return found->second;
  const BufferId buffer = lay_table(b_, format_.tables[table]);
  if (tensor_entered_) return buffer;  // laid in an inner region: not to be kept
  return tables_[table] = buffer;
}

ValueId Unpack::table_entry(const FormatTable& t, int slot, ValueId index) {
  if (t.values.size() <= kPermutedTable)
    if (const ValueId found = look_up_floats(t, index); found >= 0) return found;
  if (t.values.size() > kSelectTable) return read_table(b_, t, table_buffer(slot), index);
  const int lanes = b_.type(index).lanes;
  const Scalar s = is_float(t.type) ? Scalar::f32 : scalar_bits(t.type) >= 32 ? t.type : Scalar::i32;
  const VType index_type = b_.type(index), entry_type{s, lanes};
  std::vector<ValueId> level;
  for (const double x : t.values)
    level.push_back(is_float(s) ? b_.real(x, entry_type) : b_.integer(static_cast<int64_t>(x), entry_type));
  for (int bit = 0; level.size() > 1; ++bit) {
    const ValueId one = b_.op(ScalarOp::and_, index, b_.integer(int64_t{1} << bit, index_type));
    const ValueId set = b_.op(ScalarOp::ne_, one, b_.integer(0, index_type));
    std::vector<ValueId> next;
    for (size_t k = 0; k < level.size(); k += 2)
      next.push_back(k + 1 == level.size() || level[k] == level[k + 1]
                         ? level[k]
                         : b_.op(ScalarOp::select_, set, level[k + 1], level[k]));
    level = std::move(next);
  }
  return level[0];
}

Lanes Unpack::read_table_lanes(const RoutineExpr& e, const Frame& frame) {
  const FormatTable& t = format_.tables[e.slot];
  const Lanes index = evaluate(e.args[0], frame);
  if (!index.is_known()) return {e.type, b_.convert(ScalarOp::cast_, e.type, table_entry(t, e.slot, index.value)), {}};
  Lanes out{e.type, -1, {}};
  for (const ScalarValue& i : index.known) {
    LUMEN_CHECK(i.integer >= 0 && i.integer < static_cast<int64_t>(t.values.size()), "entry {} of table {}", i.integer,
                t.name);
    const double x = t.values[static_cast<size_t>(i.integer)];
    out.known.push_back(is_float(e.type) ? ScalarValue{x, 0} : ScalarValue{0, static_cast<int64_t>(x)});
  }
  return shrink(out);
}

Lanes Unpack::evaluate(const RoutineExpr& e, const Frame& frame) {
  using Kind = RoutineExpr::Kind;
  switch (e.kind) {
    case Kind::constant:
      return known(e.type, {e.real, e.integer});
    case Kind::variable: {
      LUMEN_CHECK(frame.variables[e.slot].has_value(), "variable {} is read before it is set", e.slot);
      return *frame.variables[e.slot];
    }
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
  LUMEN_UNREACHABLE("expression kind {} in decode", static_cast<int>(e.kind));
}

ValueId Unpack::expression(const RoutineExpr& e, const std::vector<int64_t>& elements, bool splat) {
  return materialize(evaluate(e, frame_at(elements)), static_cast<int>(elements.size()), splat);
}

ValueId Unpack::expression(const RoutineExpr& e, int64_t position, int lanes, bool splat) {
  return expression(e, run_of(position, lanes), splat);
}

ValueId Unpack::codes(int field, const std::vector<int64_t>& elements, bool as_bytes, const machine::Machine* rows) {
  std::vector<FieldPlace> places;
  for (const int64_t e : elements) places.push_back({e / format_.block * format_.block_bytes, e % format_.block});
  return load_codes(*block_window_, format_.fields[field], places, as_bytes, rows);
}

ValueId Unpack::codes(int field, int64_t position, int lanes, bool as_bytes) {
  return codes(field, run_of(position, lanes), as_bytes);
}

ValueId Unpack::values(int64_t position, int lanes) {
  if (!straight_) {
    ValueId all = -1;
    const ValueId first = b_.add(b_.mul(block_, b_.i64(format_.block)), b_.i64(position));
    for (int l = 0; l < lanes; ++l) {
      const ValueId one = value_at(b_.add(first, b_.i64(l)));
      all = l == 0 ? b_.splat(one, lanes) : b_.insert(all, one, l);
    }
    return all;
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

ValueId Unpack::value_at(ValueId element) {
  const ValueId block = b_.op(ScalarOp::div_, element, b_.i64(format_.block));
  const ValueId in_block = b_.op(ScalarOp::rem_, element, b_.i64(format_.block));
  const ValueId row = b_.op(ScalarOp::div_, element, b_.i64(columns_));
  const ValueId column = b_.op(ScalarOp::rem_, element, b_.i64(columns_));
  RoutineHooks hooks;
  hooks.field = [&](int slot, ValueId index) {
    const Field& field = format_.fields[slot];
    ValueId record = at(layout_.section[static_cast<int>(field.level)]);
    switch (field.level) {
      case Level::block:
        record = b_.add(record, b_.mul(block, b_.i64(format_.block_bytes)));
        break;
      case Level::row:
        record = b_.add(record, b_.mul(row, b_.i64(format_.row_bytes)));
        break;
      case Level::tile: {
        const ValueId tile =
            b_.add(b_.mul(b_.op(ScalarOp::div_, row, b_.i64(format_.tile_rows)), b_.i64(layout_.tile_columns)),
                   b_.op(ScalarOp::div_, column, b_.i64(format_.tile_columns)));
        record = b_.add(record, b_.mul(tile, b_.i64(format_.tile_bytes)));
        break;
      }
      case Level::tensor:
        break;
    }
    return read_field(b_, field, buffer_, record, index);
  };
  hooks.table = [&](int slot, ValueId index) {
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
