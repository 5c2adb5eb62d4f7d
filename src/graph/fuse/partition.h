// A graph's compute nodes, partitioned into clusters that become groups. Each pass of fuse.h merges clusters where the
// group contract allows it and no cycle arises.
#pragma once

#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "graph/fuse/plan.h"
#include "graph/match/uses.h"

namespace lumen::graph {

// The shape and root of a set of nodes as one group.
struct Form {
  KernelShape shape = KernelShape::map;
  ValueId root = -1;
};
// The form of map, random, reduce and update nodes; nullopt if the contract forbids it.
std::optional<Form> row_form(const Graph& g, const Users& users, const std::vector<ValueId>& nodes);

struct Cluster {
  std::vector<ValueId> nodes;  // compute nodes, in graph order; empty once merged away
  KernelShape shape = KernelShape::move;
  ValueId root = -1;
  std::set<int> next, previous;  // clusters that must run after or before

  bool is_row_like() const { return shape == KernelShape::map || shape == KernelShape::reduce; }
};

class Partition {
 public:
  // Every compute node is a cluster. The graph has numeric dims and loads that groups can hold (pass.h); it must
  // outlive the partition.
  explicit Partition(const Graph& g);

  const Graph& graph() const { return g_; }
  const Users& users() const { return users_; }
  const std::vector<Cluster>& clusters() const { return clusters_; }
  int cluster_of(ValueId v) const { return cluster_[v]; }  // -1 for values that are not computed
  const Cluster& around(ValueId v) const { return clusters_[cluster_[v]]; }
  bool is_alone(ValueId v) const { return around(v).nodes.size() == 1; }
  bool feeds_update(ValueId v) const;  // a map fused with its update writes in place; elsewhere it would need a copy

  // Merges the whole clusters that contain `nodes`; false if that is impossible.
  bool attempt(const std::vector<ValueId>& nodes, Form form);

  // LUMEN_CHECKs, naming the preceding pass: every compute node is in one cluster, nodes are in graph order, a root is
  // in its cluster, and the clusters form no cycle.
  void verify_or_die(std::string_view after) const;

 private:
  int size() const { return clusters_.size(); }
  void edge(int from, int to);
  bool convex(const std::set<int>& members, int last, std::set<int>* after) const;
  void reorder(const std::set<int>& members, int target, int first, int last, const std::set<int>& after);
  void replace(const std::set<int>& members, int target);

  const Graph& g_;
  Users users_;
  std::vector<int> cluster_;  // by value
  std::vector<Cluster> clusters_;
  std::vector<int> order_;  // clusters in an order that respects `next`; -1 where one was merged away
  std::vector<int> place_;  // of each cluster in order_
};

}  // namespace lumen::graph
