#include "kernel/synth/body/body.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "graph/ir/random.h"
#include "number/facts/limits.h"

namespace lumen::synth {

using graph::Node;
using graph::Op;

namespace {

Scalar memory_type(Scalar s) {
  return s == Scalar::boolean ? Scalar::u8 : s;
}

}  // namespace

bool is_heavy_op(ScalarOp op) {
  return op == ScalarOp::exp_ || op == ScalarOp::log_ || op == ScalarOp::sin_ || op == ScalarOp::cos_ ||
         op == ScalarOp::tanh_ || op == ScalarOp::pow_;
}

Body::Body(StepBuilder& builder, const graph::Plan& plan, const graph::Group& group, const std::vector<int64_t>& shape,
           const std::vector<bool>& barrier, const std::map<graph::ValueId, Access>& loads,
           const std::map<graph::ValueId, Access>& stores)
    : builder_(builder), b_(builder.b), plan_(plan), group_(group), shape_(shape) {
  const graph::Graph& g = plan.graph;
  int listed = 0;
  for (const auto& [v, access] : loads) add_load(v, shape, Load::Kind::memory, &access);
  for (const auto& [v, access] : stores) store_of_[v] = add_load(v, shape, Load::Kind::number, &access);
  for (const graph::ValueId v : group.nodes) {
    const Node& n = g[v];
    if (is_load(plan, group, v) || n.type.element.format || !fits(v)) continue;
    if (n.op == Op::reduce_ || n.op == Op::map_ || n.op == Op::random_ || n.op == Op::cast_) {
      for (const graph::ValueId a : n.operands)
        if (is_load(plan, group, a) && fits(a)) add_load(a, shape, Load::Kind::memory);
      if (n.op == Op::reduce_) store_of_[v] = add_load(v, shape, Load::Kind::number);
      if (n.op == Op::random_) number_of_[v] = add_load(v, shape, Load::Kind::number);
      for (const ScalarNode& s : n.attributes.formula.nodes) {
        if (s.op == ScalarOp::input || s.op == ScalarOp::constant) continue;
        operations_ += 1;
        heavy_ = heavy_ || is_heavy_op(s.op);
        if (listed++ < 6) summary_ += fmt::format("{}{}", summary_.empty() ? "" : " ", scalar_op_info(s.op).name);
      }
      if (n.op == Op::random_) summary_ += summary_.empty() ? "random" : " random";
    } else if (n.op == Op::update_) {
      if (is_load(plan, group, n.operands[1])) add_load(n.operands[1], shape, Load::Kind::memory);
    }
  }
  for (const graph::ValueId r : group.results)
    if (is_load(plan, group, r) && loads.empty()) add_load(r, shape, Load::Kind::memory);  // a load copied to memory
  for (const graph::ValueId r : group.results)
    if (fits(r) && !store_of_.contains(r)) store_of_[r] = add_load(r, shape, Load::Kind::number);
  for (const graph::ValueId v : group.inputs) traffic_ += graph::byte_size(g[v].type);
  for (const graph::ValueId v : group.results) traffic_ += graph::byte_size(g[v].type);

  // Rows of formats with fields per row must not be merged: one more walk, in which a row is longer than its columns,
  // prevents it.
  std::vector<std::vector<int64_t>> walks;
  for (const Load& load : loads_) walks.push_back(load.strides);
  for (const Load& load : loads_) {
    if (!load.unpack || !load.unpack->needs_rows()) continue;
    const int64_t columns = extents_of(g[load.source].type.shape).back();
    walks.push_back(load.strides);
    for (int64_t& s : walks.back())
      if (s >= columns) s *= 3;
  }
  const Collapsed c = collapse(shape, walks, barrier);
  extents_ = c.extents;
  first_axis_ = c.first_axis;
  for (size_t k = 0; k < loads_.size(); ++k) loads_[k].strides = c.strides[k];
  set_vector_axis(extents_.size() - 1);
}

bool Body::fits(graph::ValueId v) const {
  const std::vector<int64_t> own = extents_of(plan_.graph[v].type.shape);
  if (own.size() > shape_.size()) return false;
  for (size_t d = 0; d < own.size(); ++d)
    if (own[d] != 1 && own[d] != shape_[shape_.size() - own.size() + d]) return false;
  return true;
}

// `number`: no memory is read; the access gives element numbers of v itself.
int Body::add_load(graph::ValueId v, const std::vector<int64_t>& shape, Load::Kind kind, const Access* given) {
  if (kind != Load::Kind::number)
    if (const auto found = load_of_.find(v); found != load_of_.end()) return found->second;
  const graph::Graph& g = plan_.graph;
  Load load;
  Access a;
  if (given) {
    a = *given;
  } else if (kind == Load::Kind::number) {
    const std::vector<int64_t> own = extents_of(g[v].type.shape);
    a = graph::broadcast({v, 0, dense_strides_of(own)}, own, shape);
  } else {
    a = follow_to(plan_, group_, v, shape);
  }
  load.source = a.source;
  load.offset = a.offset;
  load.strides = a.strides;
  const Node& n = g[a.source];
  load.type = n.type.element.scalar;
  const bool in_memory = graph::reads_memory(group_, a.source);
  if (kind == Load::Kind::number) {
    load.kind = kind;
  } else if (!in_memory && n.op == Op::constant_) {
    LUMEN_CHECK(n.attributes.data.size() == 1, "a constant of several numbers is not among the inputs");
    load.kind = Load::Kind::splat;
    std::fill(load.strides.begin(), load.strides.end(), 0);
  } else if (!in_memory && n.op == Op::iota_) {
    load.kind = Load::Kind::iota;
  } else if (!in_memory && n.op == Op::cast_) {
    const Node& blob = g[n.operands[0]];
    const std::vector<int64_t> extents = extents_of(blob.type.shape);
    load.kind = Load::Kind::blocks;
    load.buffer = builder_.value(n.operands[0], false);
    const int64_t columns = extents.empty() ? 1 : extents.back();
    load.unpack = std::make_shared<Unpack>(b_, *blob.type.element.format, load.buffer,
                                           product(extents) / std::max<int64_t>(columns, 1), columns);
  } else {
    LUMEN_CHECK(!n.type.element.format, "a format is read without a cast");
    load.kind = Load::Kind::memory;
    load.buffer = builder_.value(a.source, false);
    load.scale = scalar_bytes(load.type);
  }
  loads_.push_back(std::move(load));
  const int number = loads_.size() - 1;
  if (kind != Load::Kind::number) load_of_[v] = number;
  return number;
}

void Body::set_vector_axis(int axis) {
  vector_axis_ = axis;
  for (Load& load : loads_) {
    if (!load.unpack) continue;
    const int64_t block = load.unpack->format().block;
    bool blocks = load.strides[axis] == 1 && load.offset % block == 0 && extents_[axis] % block == 0 &&
                  unrolls(load.unpack->format());
    for (size_t d = 0; d < extents_.size(); ++d)
      if (static_cast<int>(d) != axis) blocks = blocks && load.strides[d] % block == 0;
    // Rows of the blob must hold whole runs of the vector axis.
    if (blocks && load.unpack->needs_rows()) {
      const int64_t columns = extents_of(plan_.graph[load.source].type.shape).back();
      blocks = load.offset % columns + extents_[axis] <= columns;
      for (size_t d = 0; d < extents_.size(); ++d)
        if (static_cast<int>(d) != axis && load.strides[d] != 0)
          blocks =
              blocks && (load.strides[d] % columns == 0 || load.offset == 0) && (load.strides[d] % extents_[axis] == 0);
    }
    load.kind = blocks ? Load::Kind::blocks : Load::Kind::elements;
  }
}

bool Body::join_last_axes(int lanes) {
  if (extents_.size() < 2) return false;
  const size_t last = extents_.size() - 1;
  const int64_t run = extents_[last], runs = extents_[last - 1];
  if (run <= 1 || lanes % run != 0 || runs * run % lanes != 0) return false;
  const std::vector<Load> apart = loads_;
  const std::vector<int64_t> extents = extents_;
  extents_.pop_back();
  extents_.back() = run * runs;
  run_ = run;
  vector_axis_ = last - 1;
  bool fits = true;
  for (Load& load : loads_) {
    const int64_t inner = load.strides[last];
    load.strides.pop_back();
    load.in_runs = load.strides.back() != inner * run;
    if (load.in_runs)
      load.in_run = inner;
    else
      load.strides.back() = inner;
    fits = fits && !load.unpack && (load.kind != Load::Kind::memory || find_window(load, lanes));
  }
  for (const auto& [v, number] : store_of_) {
    const bool is_result = std::ranges::find(group_.results, v) != group_.results.end();
    fits = fits && (!is_result || (!loads_[number].in_runs && loads_[number].strides.back() == 1));
  }
  if (fits) return true;
  loads_ = apart;
  extents_ = extents;
  run_ = 1;
  set_vector_axis(last);
  return false;
}

// Distances of the lanes from the first number of a vector.
std::vector<int64_t> Body::lane_steps(const Load& load) const {
  const int64_t stride = !at_.exists() ? 0 : load.strides[vector_axis_];
  std::vector<int64_t> steps;
  for (int l = 0; l < lanes_; ++l)
    steps.push_back(load.in_runs && at_.exists() ? l / run_ * stride + l % run_ * load.in_run : l * stride);
  return steps;
}

// Loads with a single stride need no window. A window is inside the source at every position of the load.
bool Body::find_window(Load& load, int lanes) const {
  const int64_t stride = load.strides[vector_axis_];
  if (!load.in_runs) return stride == 0 || stride == 1;
  const int64_t vector_runs = lanes / run_;
  const int64_t span = (vector_runs - 1) * stride + (run_ - 1) * load.in_run + 1;
  if (stride < 0 || load.in_run < 0 || span > lanes) return false;
  load.window = 1;
  while (load.window < span) load.window *= 2;
  int64_t start = load.offset + (extents_[vector_axis_] / run_ - vector_runs) * stride;  // of the last vector
  for (size_t d = 0; d < extents_.size(); ++d) {
    if (load.strides[d] < 0) return false;
    if (static_cast<int>(d) != vector_axis_) start += (extents_[d] - 1) * load.strides[d];
  }
  const int64_t numbers = product(extents_of(plan_.graph[load.source].type.shape));
  load.ahead = std::max<int64_t>(start + load.window - numbers, 0);
  return load.ahead <= load.offset && load.ahead + span <= load.window;
}

Body::Chunking Body::chunking(int machine_lanes) const {
  Chunking c;
  for (const Load& load : loads_) {
    if (load.kind != Load::Kind::blocks) continue;
    const int64_t block = load.unpack->format().block;
    if (c.lanes == 0) c.lanes = c.unit_lanes = machine_lanes;
    c.unit = std::lcm(c.unit, block);
    const int64_t low = block & -block;
    c.unit_lanes = std::min<int64_t>(c.unit_lanes, low);
    if (block % machine_lanes != 0 && machine_lanes % block != 0) c.lanes = std::min<int64_t>(c.lanes, low);
  }
  if (c.lanes > 0) c.chunk = std::lcm(c.unit, int64_t{c.lanes});
  return c;
}

void Body::begin_task() {
  scopes_.clear();
  scopes_.emplace_back();
  for (Load& load : loads_) {
    load.partial.assign(1, b_.i64(load.offset * load.scale));
    if (load.unpack) load.unpack->enter_tensor();
  }
}

void Body::open(int axis, Expr counter) {
  scopes_.emplace_back();
  for (Load& load : loads_) {
    Expr sum = load.partial.back();
    if (load.strides[axis] != 0) sum = sum + counter * (load.strides[axis] * load.scale);
    load.partial.push_back(sum);
  }
}

void Body::close() {
  scopes_.pop_back();
  for (Load& load : loads_)
    if (load.partial.size() > 1) load.partial.pop_back();
}

void Body::open_lanes(Expr at, int lanes, Expr count) {
  at_ = at;
  lanes_ = lanes;
  count_ = count;
  scopes_.emplace_back();
  for (Load& load : loads_) load.partial.push_back(load.partial.back());
}

void Body::open_scalar() {
  open_lanes({}, 1, {});
}

void Body::enter_chunk(Expr at, int64_t elements) {
  for (Load& load : loads_) {
    if (load.kind != Load::Kind::blocks) continue;
    const int64_t block = load.unpack->format().block;
    const Expr first = load.partial.back() + at;
    load.unpack->enter_block(first / block, elements / block);
  }
  position_ = 0;
}

Expr Body::offset_of(const Load& load) const {
  const int64_t stride = load.strides[vector_axis_];
  if (!at_.exists() || stride == 0) return load.partial.back();
  return load.partial.back() + (load.in_runs ? at_ / run_ : at_) * (stride * load.scale);
}

Expr Body::widen(Expr x) const {
  return b_.type(x).lanes == lanes_ ? x : b_.splat(x, lanes_);
}

// first + the lane's step, in a number type; `first` is i64.
Expr Body::lane_numbers(Expr first, const std::vector<int64_t>& steps, Scalar type) {
  const Scalar whole = is_float(type) ? Scalar::i64 : type;
  Expr x = widen(cast(first, whole));
  const bool differ = std::ranges::any_of(steps, [](int64_t step) { return step != 0; });
  if (lanes_ > 1 && differ) x = x + b_.lanes_integer(steps, whole);
  return cast(x, type);
}

// Numbers of a window, spread over the lanes.
Expr Body::read_runs(const Load& load) {
  const Scalar s = memory_type(load.type);
  const Expr offset = offset_of(load) - load.ahead * load.scale;
  const Expr near = b_.load(load.buffer, {s, load.window}, offset, scalar_bytes(s));
  if (load.window == 1) return widen(near);
  std::vector<int> mask;
  for (const int64_t step : lane_steps(load)) mask.push_back(static_cast<int>(step + load.ahead));
  return b_.shuffle({near}, mask);
}

Expr Body::read_memory(const Load& load) {
  const Scalar s = memory_type(load.type);
  const int size = scalar_bytes(s);
  const int64_t stride = !at_.exists() ? 0 : load.strides[vector_axis_];
  const Expr offset = offset_of(load);
  Expr x;
  if (load.in_runs && at_.exists()) {
    x = read_runs(load);
  } else if (stride == 0 || lanes_ == 1) {
    x = b_.load(load.buffer, {s, 1}, offset, size);
  } else if (stride == 1) {
    x = b_.load(load.buffer, {s, lanes_}, offset, size, count_);
  } else {
    std::vector<int64_t> lane;
    for (int l = 0; l < lanes_; ++l) lane.push_back(l);
    Expr number = b_.lanes_integer(lane, Scalar::i64);
    if (count_.exists())  // lanes beyond the end read the last one again
      number = min(number, b_.splat(count_ - 1, lanes_));
    const Expr steps = number * (stride * load.scale);
    x = b_.gather(load.buffer, s, b_.splat(offset, lanes_) + steps);
  }
  if (load.type == Scalar::boolean) x = x != 0;
  return widen(x);
}

Expr Body::read(Load& load) {
  const int64_t stride = !at_.exists() ? 0 : load.strides[vector_axis_];
  switch (load.kind) {
    case Load::Kind::memory:
      return read_memory(load);
    case Load::Kind::splat: {
      const double x = plan_.graph[load.source].attributes.data[0];
      return is_float(load.type) ? b_.real(x, {load.type, lanes_})
                                 : b_.integer(static_cast<int64_t>(x), {load.type, lanes_});
    }
    case Load::Kind::iota:
    case Load::Kind::number:
      return lane_numbers(offset_of(load), lane_steps(load), load.type);
    case Load::Kind::blocks:
      if (at_.exists()) return load.unpack->values(position_, lanes_);
      [[fallthrough]];
    case Load::Kind::elements: {
      const Expr first = offset_of(load);
      if (stride == 0) return widen(load.unpack->value_at(first));
      Expr all;
      for (int l = 0; l < lanes_; ++l) {
        Expr lane = b_.i64(l);
        if (count_.exists()) lane = min(lane, count_ - 1);
        const Expr one = load.unpack->value_at(first + lane * stride);
        all = l == 0 ? b_.splat(one, lanes_) : b_.insert(all, one, l);
      }
      return all;
    }
  }
  LUMEN_UNREACHABLE("load");
}

const Expr* Body::find(graph::ValueId v) const {
  for (const int lanes : {lanes_, 1})
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->find({v, lanes}); found != scope->end()) return &found->second;
  return nullptr;
}

void Body::set(graph::ValueId v, Expr x) {
  scopes_.back()[{v, b_.type(x).lanes}] = x;
}

Expr Body::value(graph::ValueId v) {
  if (const Expr* known = find(v)) return widen(*known);
  const auto load = load_of_.find(v);
  const Expr x = load != load_of_.end() ? read(loads_[load->second]) : compute(v);
  set(v, x);
  return x;
}

Expr Body::compute(graph::ValueId v) {
  const Node& n = plan_.graph[v];
  switch (n.op) {
    case Op::map_: {
      std::vector<Expr> inputs;
      for (const graph::ValueId a : n.operands) inputs.push_back(value(a));
      if (inputs.empty()) return widen(b_.apply(n.attributes.formula, {})[0]);
      return b_.apply(n.attributes.formula, inputs)[0];
    }
    case Op::random_: {
      const Load& own = loads_[number_of_.at(v)];
      const Expr number = lane_numbers(offset_of(own), lane_steps(own), Scalar::u32);
      const Expr seed = cast(value(n.operands[0]), Scalar::u32);
      return b_.apply(graph::random_formula(n.attributes.salt), {seed, number})[0];
    }
    case Op::cast_: {
      const Expr x = value(n.operands[0]);
      const Scalar to = n.type.element.scalar;
      return cast(x, to);
    }
    case Op::update_:
      return value(n.operands[1]);
    case Op::reduce_:
      return cast(value(n.operands[0]), n.type.element.scalar);  // over axes of extent 1
    default:
      break;
  }
  LUMEN_UNREACHABLE("{} inside a map or reduce group", graph::op_info(n.op).name);
}

void Body::shift(Load& load, Expr elements) {
  load.partial.back() = load.partial.back() + elements * load.scale;
}

void Body::shift_load(graph::ValueId v, Expr elements) {
  shift(loads_[load_of_.at(v)], elements);
}
void Body::shift_store(graph::ValueId v, Expr elements) {
  shift(loads_[store_of_.at(v)], elements);
}

void Body::hoist(int lanes) {
  const int before = lanes_;
  const Expr at = at_;
  lanes_ = lanes;
  at_ = {};
  for (auto& [v, number] : load_of_) {
    Load& load = loads_[number];
    if (load.strides[vector_axis_] == 0 && !load.in_runs && load.kind != Load::Kind::splat) value(v);
  }
  lanes_ = before;
  at_ = at;
}

bool Body::varies(graph::ValueId v, int axis) const {
  const auto load = load_of_.find(v);
  return load == load_of_.end() || loads_[load->second].strides[axis] != 0 || loads_[load->second].in_runs;
}

void Body::store_to(BufferId buffer, Scalar type, Expr offset, Expr x) {
  if (type == Scalar::boolean) {
    const VType u8{Scalar::u8, b_.type(x).lanes};
    x = select(x, b_.integer(1, u8), b_.integer(0, u8));
  }
  b_.store(buffer, x, offset, scalar_bytes(memory_type(type)), count_);
}

void Body::store(graph::ValueId v, Expr x) {
  const Load& access = loads_[store_of_.at(v)];
  const BufferId buffer = builder_.value(v, true);
  const Scalar type = plan_.graph[v].type.element.scalar;
  LUMEN_CHECK(lanes_ == 1 || access.strides[vector_axis_] == 1 || extents_[vector_axis_] == 1,
              "a result is not contiguous along the lanes");
  store_to(buffer, type, offset_of(access) * scalar_bytes(memory_type(type)), x);
}

}  // namespace lumen::synth
