// What happens to a graph between its author and the kernels, in order, on one page.
// Every pass is one file with one function and keeps the meaning of the graph: eval before == eval after, bit for bit
// (assign and round aside, whose purpose is to change numbers). Proved by tests/graph/pass_test.cpp on random graphs.
#include "graph/pass/pipeline.h"

#include "graph/ir/verify.h"

namespace lumen::graph {

Pipeline run_pipeline(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols,
                      const ProductType& products) {
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

  Pipeline done;
  done.plan = fuse(g);  // nodes become groups, one kernel each
  verify_or_die(done.plan.graph, "fuse");

  done.memory = plan_memory(done.plan);  // values become bytes
  return done;
}

}  // namespace lumen::graph
