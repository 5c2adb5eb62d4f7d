// The inside of a map or reduce kernel: evaluates a group's nodes at a place of an iteration space, lanes along one
// axis. Loads go through strides (access.h) and unpack (formats); what does not change along an axis is computed
// outside its loop. The caller opens axes (outermost first) and requests values; computed values are kept until the
// axis is closed. Proved by tests/kernel/synth/synth_map_test.cpp and synth_reduce_test.cpp.
//
// May include: base, graph/fuse, graph/ir, kernel/machine, kernel/synth/step, kernel/synth/unpack, number/facts.
// Offers: nest.h.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "graph/fuse/plan.h"
#include "kernel/machine/machine.h"
#include "kernel/synth/step/step_builder.h"
#include "kernel/synth/unpack/unpack.h"

namespace lumen::synth {

// A 16-bit float: rounding to it hides errors of a few ulp in exp and division.
inline bool is_16bit_float(const graph::Element& e) {
  return !e.format && is_float(e.scalar) && scalar_bits(e.scalar) <= 16;
}

// Takes many instructions: worth caching, or overlapping with more of its kind.
bool is_heavy_op(ScalarOp op);

class Body {
 public:
  // The space is `shape`, its axes collapsed where all loads and results allow it; `barrier` as in collapse().
  // Evaluates the group's nodes whose shapes broadcast to it. `loads` and `stores` give the accesses of operands and
  // results that do not follow the broadcasting rules (gather, concat, ...).
  Body(StepBuilder& builder, const graph::Plan& plan, const graph::Group& group, const std::vector<int64_t>& shape,
       const std::vector<bool>& barrier, const std::map<graph::ValueId, Access>& loads = {},
       const std::map<graph::ValueId, Access>& stores = {});

  const std::vector<int64_t>& extents() const { return extents_; }
  std::vector<int64_t> outer() const { return {extents_.begin(), extents_.end() - 1}; }  // all but the last
  int first_axis(int axis) const { return first_axis_[axis]; }                           // of the original shape
  // The axis along which lanes run; set before anything is opened. Decides how formats are read.
  void set_vector_axis(int axis);
  // Joins the last axis, shorter than a vector, and the one before to the axis along which lanes run: a vector is whole
  // runs of the last axis. False if the lanes are not whole runs, a result is not contiguous, or the elements that a
  // load reads for a vector do not fit into one vector load. Replaces set_vector_axis.
  bool join_last_axes(int lanes);
  // Formats that are read block by block need chunks of `chunk` elements from multiples of `unit`, in vectors of at
  // most `lanes`; 1, 1, 0 without.
  struct Chunking {
    int64_t chunk = 1, unit = 1;
    int lanes = 0, unit_lanes = 0;
  };
  Chunking chunking(int machine_lanes) const;

  void begin_task();                  // once, in the task's region, before any axis
  void open(int axis, Expr counter);  // any axis but the vector axis
  void close();
  // Lanes [at, at + lanes) of the vector axis, of which `count` exist (no value: all). `enter_chunk` enters the blocks
  // of formats: the lanes begin `position` elements after its start.
  void open_lanes(Expr at, int lanes, Expr count);
  void enter_chunk(Expr at, int64_t elements);
  void set_position(int64_t position) { position_ = position; }
  // Scalars of the space where the vector axis is not open (values that do not vary along it).
  void open_scalar();

  Expr value(graph::ValueId v);          // `lanes` lanes
  void set(graph::ValueId v, Expr x);    // result of a reduce, in the current scope
  void store(graph::ValueId v, Expr x);  // writes lanes of a result
  void store_to(BufferId buffer, Scalar type, Expr offset, Expr x);
  // Moves the place of a load or result by a run-time number of elements, until the innermost open scope is closed.
  void shift_load(graph::ValueId v, Expr elements);
  void shift_store(graph::ValueId v, Expr elements);
  int64_t store_stride(graph::ValueId v) const { return loads_[store_of_.at(v)].strides[vector_axis_]; }
  // Row-major number of the first lane's element of a result or a reduce.
  Expr store_place(graph::ValueId v) const { return offset_of(loads_[store_of_.at(v)]); }
  // Hoists loads and maps that are constant along the vector axis out of the lane loop to come.
  void hoist(int lanes);

  bool varies(graph::ValueId v, int axis) const;  // whether a load changes along an axis
  int lanes() const { return lanes_; }
  Expr at() const { return at_; }
  Expr count() const { return count_; }
  double operations() const { return operations_; }  // scalar operations per element, for the plan
  double traffic() const { return traffic_; }        // bytes of everything read and written
  bool is_heavy() const { return heavy_; }           // has exp, log, sin, ... somewhere
  const std::string& summary() const { return summary_; }

 private:
  struct Load {
    enum class Kind {
      memory,
      blocks,
      elements,
      splat,
      iota,
      number
    } kind = Kind::memory;  // blocks, elements: of a format
    graph::ValueId source = -1;
    Scalar type = Scalar::f32;
    int64_t offset = 0;
    std::vector<int64_t> strides;  // per collapsed axis, in elements
    // Where axes were joined and the load has no single stride: the stride within a run (`strides` has that of runs),
    // how far before its first number a vector is read, and with how many lanes.
    bool in_runs = false;
    int64_t in_run = 0, ahead = 0;
    int window = 0;
    int64_t scale = 1;  // bytes per element for memory, else 1
    BufferId buffer = -1;
    std::shared_ptr<Unpack> unpack;
    std::vector<Expr> partial;  // per open scope: offset so far
  };
  bool fits(graph::ValueId v) const;
  int add_load(graph::ValueId v, const std::vector<int64_t>& shape, Load::Kind kind, const Access* given = nullptr);
  void shift(Load& load, Expr elements);
  Expr read(Load& load);
  Expr offset_of(const Load& load) const;  // of the first lane, in units of scale
  Expr read_memory(const Load& load);
  Expr read_runs(const Load& load);
  std::vector<int64_t> lane_steps(const Load& load) const;
  bool find_window(Load& load, int lanes) const;
  Expr lane_numbers(Expr first, const std::vector<int64_t>& steps, Scalar type);
  Expr widen(Expr x) const;
  Expr compute(graph::ValueId v);
  const Expr* find(graph::ValueId v) const;

  StepBuilder& builder_;
  Builder& b_;
  const graph::Plan& plan_;
  const graph::Group& group_;
  std::vector<int64_t> shape_, extents_;
  std::vector<int> first_axis_;
  std::vector<Load> loads_;
  std::map<graph::ValueId, int> load_of_;    // operand -> load
  std::map<graph::ValueId, int> number_of_;  // random node -> the load of its element number
  std::map<graph::ValueId, int> store_of_;   // result -> dense access
  int vector_axis_ = -1;
  int64_t run_ = 1;  // extent of the last axis, where two were joined
  Expr at_, count_;
  int lanes_ = 1;
  int64_t position_ = 0;
  std::vector<std::map<std::pair<graph::ValueId, int>, Expr>> scopes_;
  double operations_ = 0, traffic_ = 0;
  bool heavy_ = false;
  std::string summary_;
};

}  // namespace lumen::synth
