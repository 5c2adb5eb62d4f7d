// take_chunks. Proved by tests/graph/steps/chunks_test.cpp and tests/run/engine/chunks_test.cpp.
#include <algorithm>
#include <map>

#include "graph/ir/rewrite.h"
#include "graph/steps/steps.h"

namespace lumen::graph {

namespace {

bool has_chunks(const Graph& g) {
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node& n) { return n.op == Op::chunk_; });
}

// By scan: its chunks.
using Chunks = std::map<ValueId, std::vector<std::shared_ptr<const Graph>>>;

int64_t steps_of(const Graph& chunk, int carries) {
  return chunk[chunk.inputs()[carries]].type.shape[0].number();
}

// One scan, replaced by others over consecutive parts of its sequences.
class Parts {
 public:
  Parts(Rewriter& r, ValueId scan, std::vector<std::shared_ptr<const Graph>> chunks)
      : b_(r.build),
        scan_(r.from[scan]),
        operands_(r.operands(scan)),
        outputs_(scan_.attributes.callee->results.size()) {
    const Attributes& a = scan_.attributes;
    steps_ = b_.type(operands_[a.carries]).shape[0].number();
    const auto longer = [&](const auto& x, const auto& y) { return steps_of(*x, a.carries) > steps_of(*y, a.carries); };
    std::sort(chunks.begin(), chunks.end(), longer);
    for (const auto& chunk : chunks) {
      const int64_t each = steps_of(*chunk, a.carries);
      take(chunk, each, (steps_ - done_) / each);
    }
    take(a.callee, 1, steps_ - done_);
    for (size_t k = a.carries; k < outputs_.size(); ++k)
      results_.push_back(outputs_[k].size() == 1 ? outputs_[k][0] : b_.concat(outputs_[k], 0));
    results_.insert(results_.begin(), operands_.begin(), operands_.begin() + a.carries);
  }
  const std::vector<ValueId>& results() const { return results_; }

 private:
  // The next `times` chunks of `each` steps.
  void take(const std::shared_ptr<const Graph>& body, int64_t each, int64_t times) {
    if (times == 0) return;
    const Attributes& a = scan_.attributes;
    const bool is_one = times == 1 && each > 1;  // which needs no scan
    std::vector<ValueId> operands = operands_;
    for (int i = a.carries; i < a.carries + a.sequences; ++i) {
      Shape shape = b_.type(operands[i]).shape;
      std::vector<int64_t> starts(shape.size(), 0);
      starts[0] = done_;
      shape[0] = Dim(each * times);
      if (each * times < steps_) operands[i] = b_.slice(operands[i], starts, shape);
      if (each == 1 || is_one) continue;
      shape[0] = Dim(each);
      shape.insert(shape.begin(), Dim(times));
      operands[i] = b_.reshape(operands[i], shape);
    }
    done_ += each * times;
    std::vector<ValueId> made;
    if (is_one) {
      made = expand_call(b_.graph, *body, operands);
    } else {
      const ValueId scan = b_.scan(body, operands, a.carries, a.sequences, a.reverse);
      b_.graph[scan].label = scan_.label;
      for (int k = 0; k < std::ssize(body->results); ++k) made.push_back(b_.result(scan, k));
    }
    for (int k = 0; k < std::ssize(made); ++k) {
      if (k < a.carries) {
        operands_[k] = made[k];
        continue;
      }
      Shape shape = b_.type(made[k]).shape;
      if (each > 1 && !is_one) {
        shape.erase(shape.begin());
        shape[0] = Dim(each * times);
      }
      outputs_[k].push_back(b_.reshape(made[k], shape));
    }
  }

  Builder& b_;
  const Node& scan_;
  std::vector<ValueId> operands_;
  std::vector<std::vector<ValueId>> outputs_;  // by result: its parts
  std::vector<ValueId> results_;
  int64_t steps_ = 0, done_ = 0;
};

}  // namespace

void take_chunks(Graph& g) {
  in_own_bodies(g, take_chunks);
  if (!has_chunks(g)) return;
  Chunks chunks;
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v)
    if (g[v].op == Op::chunk_) chunks[scan_of(g, v)].push_back(g[v].attributes.callee);
  Rewriter r(g);
  std::map<ValueId, std::vector<ValueId>> results;  // by scan
  for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
    const Node& node = g[v];
    const ValueId scan = node.op == Op::result_ ? scan_of(g, node.operands[0]) : scan_of(g, v);
    if (!chunks.contains(scan)) {
      r.keep(v);
      continue;
    }
    if (v == scan) results[v] = Parts(r, v, chunks.at(v)).results();
    r.replace(v, results.at(scan)[node.op == Op::result_ ? node.attributes.index : 0]);
    if (node.op == Op::result_) r.keep_label(v);
  }
  g = r.finish();
  take_chunks(g);  // scans inside of chunks
}

}  // namespace lumen::graph
