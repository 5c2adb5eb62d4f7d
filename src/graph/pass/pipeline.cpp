// What happens to a graph between its author and the kernels, in order, on one page.
// Every pass is one file with one function and keeps the meaning of the graph: eval before == eval after, bit for bit
// (assign and round aside, whose purpose is to change numbers). Proved by tests/graph/pass_test.cpp on random graphs.
#include "graph/pass/pipeline.h"

#include "graph/ir/verify.h"
#include "graph/pass/recompute.h"

namespace lumen::graph {

Pipeline run_pipeline(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols,
                      const ProductType& products) {
  return run_pipeline(std::move(g), assignments, symbols, products, Recompute{});
}

Pipeline run_pipeline(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols,
                      const ProductType& products, const Recompute& recompute) {
  verify_or_die(g, "building");

  inline_calls(g);  // functions become their bodies
  verify_or_die(g, "inline_calls");

  simplify(g);  // names that mean the same value become one, so that an assignment meets it once
  verify_or_die(g, "simplify");

  assign_formats(g, assignments);  // which number format for which value
  verify_or_die(g, "assign_formats");

  round_products(g, products);  // in what precision parameters are multiplied
  verify_or_die(g, "round_products");

  g = bind_symbols(g, symbols);  // batch, sequence and cache extents become numbers
  verify_or_die(g, "bind_symbols");

  simplify(g);  // numbers enable more: axes of extent 1, constants of known size
  verify_or_die(g, "simplify");

  split_contracts(g);  // products take the shape of what follows them
  verify_or_die(g, "split_contracts");

  simplify(g);  // the reshapes around them meet and go
  verify_or_die(g, "simplify");

  // Layers of a training step may be computed again rather than kept; nodes become groups, one kernel each; values
  // become bytes.
  Pipeline done = plan_recomputing(g, recompute);
  verify_or_die(done.plan.graph, "fuse");
  return done;
}

}  // namespace lumen::graph
