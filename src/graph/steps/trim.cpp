// trim_scans. Proved by tests/graph/steps/scan_test.cpp.
#include <algorithm>
#include <map>
#include <memory>

#include "graph/ir/rewrite.h"
#include "graph/steps/steps.h"

namespace lumen::graph {

namespace {

// The results and operands of a scan that stay, by their old numbers.
struct Kept {
  std::vector<int> results;  // in order; carries first
  std::vector<int> operands;
  int carries = 0, sequences = 0;
  std::map<int, int> same;  // an output -> an earlier identical output
};

std::vector<bool> read_by(const Graph& body, const std::vector<int>& results) {
  std::vector<bool> read(body.nodes.size());
  for (const int k : results) read[body.results[k]] = true;
  for (ValueId v = body.nodes.size(); v-- > 0;)
    if (read[v])
      for (const ValueId o : body[v].operands) read[o] = true;
  return read;
}

Kept kept_of(const Node& scan, std::vector<bool> wanted) {
  const Graph& body = *scan.attributes.callee;
  const std::vector<ValueId> inputs = body.inputs();
  const int carries = scan.attributes.carries, sequences = scan.attributes.sequences;
  Kept kept;
  std::map<ValueId, int> outputs;
  for (int k = carries; k < std::ssize(wanted); ++k) {
    if (!wanted[k]) continue;
    const auto [first, fresh] = outputs.emplace(body.results[k], k);
    if (fresh) continue;
    kept.same[k] = first->second;
    wanted[k] = false;
  }
  std::vector<bool> read;
  for (bool grows = true; grows;) {
    grows = false;
    kept.results.clear();
    for (int k = 0; k < std::ssize(wanted); ++k)
      if (wanted[k]) kept.results.push_back(k);
    read = read_by(body, kept.results);
    for (int k = 0; k < carries; ++k) {
      if (wanted[k] || !read[inputs[k]]) continue;
      wanted[k] = grows = true;
    }
  }
  for (int k = 0; k < carries; ++k) kept.carries += wanted[k] ? 1 : 0;
  for (int i = 0; i < std::ssize(inputs); ++i) {
    const bool is_sequence = i >= carries && i < carries + sequences;
    const bool is_last_chance = is_sequence && i + 1 == carries + sequences && kept.sequences == 0;
    if (i < carries ? !wanted[i] : !read[inputs[i]] && !is_last_chance) continue;
    kept.operands.push_back(i);
    kept.sequences += is_sequence ? 1 : 0;
  }
  return kept;
}

Graph trimmed(const Graph& body, const Kept& kept) {
  const std::vector<ValueId> inputs = body.inputs();
  std::vector<bool> read = read_by(body, kept.results);
  for (const int i : kept.operands) read[inputs[i]] = true;
  Rewriter r(body);
  for (ValueId v = 0; v < std::ssize(body.nodes); ++v)
    if (read[v]) r.keep(v);
  for (const int k : kept.results) {
    r.to.results.push_back(r[body.results[k]]);
    r.to.result_names.push_back(body.result_names[k]);
  }
  return std::move(r.to);
}

class Trimmer {
 public:
  explicit Trimmer(const Graph& g) : r_(g), live_(live_values(g)) {}

  Graph run() {
    const Graph& g = r_.from;
    std::map<ValueId, std::vector<bool>> wanted;
    const auto want = [&](ValueId scan, int k) {
      std::vector<bool>& of = wanted[scan];
      of.resize(g[scan].attributes.callee->results.size());
      of[k] = true;
    };
    for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
      if (!live_[v]) continue;
      if (g[v].op == Op::result_ && g[g[v].operands[0]].op == Op::scan_) {
        want(g[v].operands[0], g[v].attributes.index);
        continue;
      }
      for (const ValueId o : g[v].operands)
        if (g[o].op == Op::scan_) want(o, 0);
    }
    for (const ValueId v : g.results)
      if (g[v].op == Op::scan_) want(v, 0);
    for (ValueId v = 0; v < std::ssize(g.nodes); ++v) {
      if (!live_[v]) continue;
      if (g[v].op == Op::scan_)
        scan(v, kept_of(g[v], wanted[v]));
      else if (g[v].op == Op::result_ && scans_.contains(g[v].operands[0]))
        result(v);
      else
        r_.keep(v);
    }
    return r_.finish();
  }

 private:
  struct Scan {
    ValueId now;
    std::vector<int> place;          // of each old result; -1: it is removed
    std::map<int, ValueId> results;  // by place, where they are read
  };

  void scan(ValueId v, const Kept& kept) {
    Node node = r_.from[v];
    const Graph& body = *node.attributes.callee;
    const bool whole = kept.results.size() == body.results.size() && kept.operands.size() == node.operands.size();
    Scan now{-1, std::vector<int>(body.results.size(), -1), {}};
    for (size_t k = 0; k < kept.results.size(); ++k) now.place[kept.results[k]] = k;
    for (const auto& [k, first] : kept.same) now.place[k] = now.place[first];
    std::vector<ValueId> operands;
    for (const int i : kept.operands) operands.push_back(r_[node.operands[i]]);
    now.now = r_.build.scan(whole ? node.attributes.callee : std::make_shared<const Graph>(trimmed(body, kept)),
                            std::move(operands), kept.carries, kept.sequences, node.attributes.reverse);
    r_.to[now.now].label = node.label;
    // A reference to the scan node itself means its first result.
    r_.replace(v, now.place[0] > 0 ? r_.build.result(now.now, now.place[0]) : now.now);
    scans_[v] = std::move(now);
  }

  void result(ValueId v) {
    Scan& scan = scans_.at(r_.from[v].operands[0]);
    const int place = scan.place[r_.from[v].attributes.index];
    const auto [known, fresh] = scan.results.try_emplace(place, -1);
    if (fresh) known->second = r_.build.result(scan.now, place);
    r_.replace(v, known->second);
    r_.keep_label(v);
  }

  Rewriter r_;
  std::vector<bool> live_;
  std::map<ValueId, Scan> scans_;  // by old number
};

}  // namespace

void trim_scans(Graph& g) {
  if (!has_scans(g)) return;
  in_own_bodies(g, trim_scans);
  g = Trimmer(g).run();
}

}  // namespace lumen::graph
