// beside_exchanges: overlaps communication between ranks with computation. An exchange begins as soon as its input is
// ready; groups that were ordered earlier and that it does not need run after its start, before the next exchange,
// which rarely extends a live range beyond a layer. Dependent groups keep their order, so all bits stay.
// Proved by tests/graph/fuse/exchanges_test.cpp.
#include <algorithm>

#include "graph/fuse/fuse.h"

namespace lumen::graph {

namespace {

bool is_exchange(const Graph& g, ValueId root) {
  return root >= 0 && g[root].op == Op::exchange_;
}

class Reordering {
 public:
  Reordering(const Partition& p, const std::vector<int>& order)
      : p_(p), order_(order), place_(p.clusters().size(), -1), is_emitted_(order.size()) {
    for (int i = 0; i < std::ssize(order); ++i) place_[order[i]] = i;
  }

  std::vector<int> run() {
    std::vector<int> exchanges;
    for (int i = 0; i < std::ssize(order_); ++i)
      if (is_exchange(p_.graph(), root(i))) exchanges.push_back(i);
    for (size_t e = 0; e < exchanges.size(); ++e) {
      emit(needed(exchanges[e]));
      // Exchanges without a product between them, such as both halves of a sum, share the groups that can overlap them.
      const bool is_followed = e + 1 < exchanges.size() && products_in(needed(exchanges[e + 1])) == 0;
      const std::vector<int> waiting = waiting_before(exchanges[e]);
      emit(is_followed ? half_of(waiting) : waiting);
    }
    emit(waiting_before(std::ssize(order_)));
    return std::move(out_);
  }

 private:
  ValueId root(int i) const { return p_.clusters()[order_[i]].root; }

  bool is_product(int i) const { return root(i) >= 0 && graph::is_product(p_.graph()[root(i)].op); }
  int64_t products_in(const std::vector<int>& places) const {
    return std::ranges::count_if(places, [&](int i) { return is_product(i); });
  }

  // The given group and its prerequisites that are not emitted yet, in the original order.
  std::vector<int> needed(int last) const {
    std::vector<int> out = {last};
    std::set<int> known = {last};
    for (size_t k = 0; k < out.size(); ++k)
      for (const int c : p_.clusters()[order_[out[k]]].previous)
        if (!is_emitted_[place_[c]] && known.insert(place_[c]).second) out.push_back(place_[c]);
    std::ranges::sort(out);
    return out;
  }

  std::vector<int> waiting_before(int end) const {
    std::vector<int> out;
    for (int i = first_waiting_; i < end; ++i)
      if (!is_emitted_[i]) out.push_back(i);
    return out;
  }

  // Up to the median product; all if there are none.
  std::vector<int> half_of(std::vector<int> places) const {
    const int64_t half = (products_in(places) + 1) / 2;
    int64_t products = 0;
    const auto last = std::ranges::find_if(places, [&](int i) { return is_product(i) && ++products == half; });
    if (last != places.end()) places.erase(last + 1, places.end());
    return places;
  }

  void emit(const std::vector<int>& places) {
    for (const int i : places) {
      out_.push_back(order_[i]);
      is_emitted_[i] = true;
    }
    while (first_waiting_ < std::ssize(order_) && is_emitted_[first_waiting_]) ++first_waiting_;
  }

  const Partition& p_;
  const std::vector<int>& order_;
  std::vector<int> place_;  // position of a cluster in the order
  std::vector<bool> is_emitted_;
  int first_waiting_ = 0;
  std::vector<int> out_;
};

}  // namespace

std::vector<int> beside_exchanges(const Partition& p, const std::vector<int>& order) {
  return Reordering(p, order).run();
}

int end_of_exchange(const Plan& plan, int group) {
  const Graph& g = plan.graph;
  const Group& exchange = plan.groups[group];
  const auto storage = [&](ValueId v) {
    while (g[v].op == Op::update_) v = g[v].operands[0];
    return v;
  };
  for (int i = group + 1; i < std::ssize(plan.groups); ++i) {
    const Group& other = plan.groups[i];
    const bool reads = std::ranges::any_of(
        other.inputs, [&](ValueId v) { return std::ranges::find(exchange.results, v) != exchange.results.end(); });
    // A state that is sent may only change after the exchange.
    const bool writes = std::ranges::any_of(other.results, [&](ValueId v) {
      return g[v].op == Op::update_ &&
             std::ranges::any_of(exchange.inputs, [&](ValueId sent) { return storage(sent) == storage(v); });
    });
    if (reads || writes) return i;
  }
  return std::ssize(plan.groups);
}

}  // namespace lumen::graph
