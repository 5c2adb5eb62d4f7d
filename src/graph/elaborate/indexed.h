// Index notation: `y[m, n] = sum(k) x[m, k] * w[n, k]`. Every index is an axis; a product of two factors summed over a
// shared index is a contraction, everything else a map and a reduction. Proved by
// tests/graph/elaborate/elaborate_test.cpp.
#pragma once

#include "graph/elaborate/elaboration.h"

namespace lumen::graph {

class Indexed {
 public:
  explicit Indexed(Elaboration& e) : e_(e) {}

  Value define(const lang::Stmt& s);      // the tensor defined by `target[i, j] = value`
  Value whole(const lang::Expr& reduce);  // a reduction without free indices: rank 0

 private:
  struct Index {
    std::string name;
    char letter = 'a';
    std::optional<Dim> extent;
    int64_t first = 0;  // of a given range
    bool ranged = false;
  };
  // A tensor over some of the indices. loose: its axes are exactly `over`, in that order. Otherwise its axes are the
  // indices in their order, right-aligned, with extent 1 for those it does not depend on. Without indices: any shape
  // that broadcasts.
  struct Item {
    Value value;
    std::vector<int> over;  // numbers of indices, ascending unless loose
    bool loose = false;
    ValueId table = -1, rows = -1;  // the value is a gather of these: the rows' indices lead `over`
  };

  int add_index(const std::string& name, const Place& place);
  int find_index(const std::string& name) const;  // -1 if there is none
  bool mentions(const lang::Expr& e) const;       // any index
  bool mentions(const lang::Expr& e, const std::vector<int>& which) const;
  void learn_extents(const lang::Expr& e);
  void set_extent(int index, const Dim& d, const Place& place);

  Item item(const lang::Expr& e);
  Item element(const lang::Expr& e);  // x[i, j]

  // ---- subscripts.cpp: sums of multiples of indices
  struct Affine {
    int64_t start = 0;
    std::vector<std::pair<int, int64_t>> strides;  // by index, nonzero; several, or one that is not 1, make windows
    bool is_plain() const { return start == 0 && strides.size() == 1 && strides[0].second == 1; }
  };
  // A subscript as an affine sum; nullopt if it is none.
  std::optional<Affine> affine(const lang::Expr& e);
  std::optional<Affine> shifted(const lang::Expr& e, const Value& base, size_t axis, bool has_outside);
  void find_extent(const Affine& a, const Dim& extent, bool has_outside, const Place& place);
  // The first and the last position a subscript reads along an axis.
  std::pair<int64_t, int64_t> reach(const Affine& a, const Place& place) const;
  Value surrounded(const lang::Expr& e, const Value& base, std::vector<Affine>& axes);
  Item windowed(const lang::Expr& e, Value base, std::vector<Affine> axes, std::optional<Item> rows);
  void pick_rows(Item& out, Item rows, const Place& place);
  Item reduce(const lang::Expr& e);
  std::vector<int> open_indices(const lang::Expr& e);
  Item reduced(const lang::Expr& e, const std::vector<int>& summed, std::vector<Item> parts);
  Item contract(const Item& a, const Item& b, const std::vector<int>& summed, const Place& place);
  std::optional<Item> contract_picked(const Item& x, const Item& picked, const std::vector<int>& summed,
                                      const Place& place);
  Item call(const lang::Expr& e);
  Item combine(const std::vector<Item>& parts, const std::function<Value(std::vector<Value>)>& op);
  Value aligned(const Item& i, const Place& place);
  Item loose(const Item& i, const Place& place);

  Elaboration& e_;
  std::vector<Index> indices_;
};

}  // namespace lumen::graph
