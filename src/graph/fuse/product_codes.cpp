// group_product_codes: a product absorbs casts of its result into formats of one byte a number, in row-major order and
// transposed; maps between it and such casts that codes groups have absorbed; and extremes of all its numbers. Other
// readers of the result read it from memory.
// Proved by tests/graph/pass/group_product_codes.txt and tests/graph/fuse_test.cpp.
#include <algorithm>

#include "graph/fuse/extreme_chain.h"
#include "graph/fuse/fuse.h"
#include "graph/match/access.h"
#include "graph/match/codes.h"

namespace lumen::graph {

namespace {

constexpr size_t kMostCasts = 4;

class ProductCodes {
 public:
  ProductCodes(const Partition& p, const Cluster& product)
      : p_(p), g_(p.graph()), product_(product), end_(product.nodes.back()), shape_(g_[product.root].type.shape) {}

  // False if no cast encodes the product.
  bool find() {
    if (g_[product_.root].op != Op::contract_ || shape_.empty()) return false;
    nodes_ = product_.nodes;
    visit(end_);
    return casts_ > 0 && casts_ <= kMostCasts && !waits_for_itself();
  }
  const std::vector<ValueId>& nodes() const { return nodes_; }

 private:
  void visit(ValueId v) {
    for (const ValueId u : p_.users()[v]) {
      if (u < 0) continue;
      if (is_view(g_[u].op)) {
        visit(u);
      } else if (p_.cluster_of(u) >= 0 && !is_inside(u)) {
        take(v, u);
      }
    }
  }

  void take(ValueId v, ValueId u) {
    const Cluster& around = p_.around(u);
    if (g_[u].op == Op::cast_ && p_.is_alone(u)) {
      if (is_supplied(u) && byte_cast(g_, u)->source == end_) add({u}, 1);
    } else if (around.shape == KernelShape::move && g_[u].op == Op::map_ && v == end_) {
      if (encodes_maps_of_result(around))
        add(around.nodes, std::ranges::count(around.nodes, Op::cast_, [&](ValueId n) { return g_[n].op; }));
    } else if (v == end_) {
      add(extreme_chain(p_, u, shape_), 0);
    }
  }
  void add(const std::vector<ValueId>& nodes, size_t casts) {
    nodes_.insert(nodes_.end(), nodes.begin(), nodes.end());
    casts_ += casts;
  }

  bool is_inside(ValueId v) const { return std::ranges::find(nodes_, v) != nodes_.end(); }
  bool is_supplied(ValueId cast) const { return encodable_cast(g_, cast) && fitted_square(g_, cast) == 0; }

  // A codes group whose maps read the product's result without views; their other operands can be loads.
  bool encodes_maps_of_result(const Cluster& c) const {
    return std::ranges::all_of(c.nodes, [&](ValueId n) {
      if (g_[n].op == Op::cast_) return is_supplied(n);
      if (g_[n].op == Op::reduce_) return true;
      if (g_[n].op != Op::map_ || g_[n].type.shape != shape_) return false;
      return std::ranges::all_of(g_[n].operands, [&](ValueId o) { return o == end_ || read_below(g_, o) != end_; });
    });
  }

  // Whether codes wait for an extreme found in this group, as they do when their scale is computed from it.
  bool waits_for_itself() const {
    return std::ranges::any_of(nodes_, [&](ValueId v) {
      return std::ranges::any_of(g_[v].operands, [&](ValueId o) {
        const ValueId below = read_below(g_, o);
        return g_[v].op != Op::reduce_ && below >= 0 && g_[below].op == Op::reduce_ && is_inside(below);
      });
    });
  }

  const Partition& p_;
  const Graph& g_;
  const Cluster& product_;
  ValueId end_;
  Shape shape_;
  std::vector<ValueId> nodes_;
  size_t casts_ = 0;
};

}  // namespace

void group_product_codes(Partition& p) {
  for (size_t c = 0; c < p.clusters().size(); ++c) {
    const Cluster& product = p.clusters()[c];
    if (product.shape != KernelShape::dot || product.nodes.empty()) continue;
    const ValueId root = product.root;
    ProductCodes codes(p, product);
    if (codes.find()) p.attempt(codes.nodes(), {KernelShape::dot, root});
  }
}

}  // namespace lumen::graph
