// The passes of a reduction over a row: what each evaluates, and the values that later ones need again. Proved by
// tests/kernel/synth/synth_reduce_test.cpp.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "kernel/synth/reduce/reduce.h"

namespace lumen::synth {

class RowPasses {
 public:
  // `body`: its first reduced axis, and the kept ones.
  RowPasses(const graph::Plan& plan, const graph::Group& group, const ReduceFacts& facts, const Body& body,
            int reduced_axis, std::vector<int> kept_axes);

  int count() const { return facts_.passes; }
  bool visits(int pass, graph::ValueId v) const { return visited_[pass].contains(v); }
  std::vector<graph::ValueId> reduces_of(int pass) const;
  std::vector<graph::ValueId> results_of(int pass) const;

  // Passes that compute a value and need it last.
  struct Span {
    int first = 0, last = 0;
  };
  using Values = std::map<graph::ValueId, Span>;
  // Maps with exp and the like that several passes need.
  Values costly() const;
  // Values that a pass computes from memory that differs between rows, closest to where a later pass needs them again,
  // within `most` registers of a lane, which has `elements` of the row.
  Values held(int64_t elements, int64_t most) const;
  // Registers of a lane at the start of a pass: values needed last there make room for those computed first, vector by
  // vector.
  int64_t registers(const Values& held, int64_t elements) const;

 private:
  void visit(graph::ValueId v, int pass);
  void hold(graph::ValueId v, int pass, int64_t elements, int64_t most, Values& held) const;
  bool reads_rows(graph::ValueId v) const;

  const graph::Plan& plan_;
  const graph::Graph& g_;
  const graph::Group& group_;
  const ReduceFacts& facts_;
  const Body& body_;
  int reduced_axis_;
  std::vector<int> kept_axes_;
  std::vector<std::set<graph::ValueId>> visited_;
};

}  // namespace lumen::synth
