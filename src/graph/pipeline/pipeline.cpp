// The stages of a graph from its author to the kernels, in order: a training step passes through all five functions, a
// function that is only run through the last two. Every pass is one file with one function, and the verifier runs after
// each. From run_pipeline on, passes keep the meaning of the graph: eval before == eval after, bit for bit (except
// assign and round, whose purpose is to change numbers). Proved by tests/graph/pass_test.cpp on random graphs, by
// tests/graph/pass_text_test.cpp, and by tests/graph/pipeline_test.cpp for training.
#include "graph/pipeline/pipeline.h"

#include <algorithm>
#include <type_traits>

#include "graph/grad/grad.h"
#include "graph/ir/rewrite.h"
#include "graph/ir/verify.h"
#include "graph/steps/steps.h"

namespace lumen::graph {

namespace {

// Every pass is called through this class, so that each is verified.
class VerifiedPasses {
 public:
  explicit VerifiedPasses(Graph& g) : g_(g) { verify_or_die(g_, "building"); }
  template <class Pass>  // modifies the graph, or returns another
  void operator()(const char* name, const Pass& pass) const {
    if constexpr (std::is_void_v<std::invoke_result_t<Pass, Graph&>>)
      pass(g_);
    else
      g_ = pass(std::move(g_));
    verify_or_die(g_, name);
  }

 private:
  Graph& g_;
};

// Completes the changes once all their readers exist.
void complete_changes(const VerifiedPasses& pass, const Changes& c) {
  if (!c.sums.empty()) pass("narrow_gradients", narrow_gradients);  // A and B: no gradient as large as the weight
  pass("fill_norms", [&](Graph g) { return fill_norms(std::move(g), c.low_rank); });  // constants for differentiation
}

}  // namespace

Graph changed(Graph g, const Changes& c) {
  const VerifiedPasses pass(g);
  const bool adapts = !c.low_rank.empty() || !c.sums.empty();
  if (c.texts_apart || adapts) pass("inline_calls", inline_calls);  // transforms see no calls
  if (c.texts_apart) pass("keep_texts_apart", [](Graph& h) { keep_texts_apart(h); });
  if (adapts) pass("simplify", simplify);  // each use refers to the weight directly
  pass("add_low_rank", [&](Graph h) { return add_low_rank(std::move(h), c.low_rank); });
  pass("add_rounded_sums", [&](Graph h) { return add_rounded_sums(std::move(h), c.sums); });
  pass("assign_formats", [&](Graph& h) { assign_formats(h, c.roundings); });  // roundings that training sees
  pass("scale_fields", [&](Graph h) { return scale_fields(std::move(h), c.sums); });
  return g;
}

Graph loss_graph(Graph g, const Changes& changes, const Bindings& symbols, const Stage& objective) {
  g = changed(std::move(g), changes);
  const VerifiedPasses pass(g);
  pass("bind_symbols",
       [&](const Graph& h) { return bind_symbols(h, symbols); });  // objectives split rows at numeric positions
  if (objective) pass("objective", objective);
  return g;
}

Graph training_graph(Graph g, const Changes& changes, const TrainingStep& step) {
  g.name = step.name;
  const VerifiedPasses pass(g);
  pass("inline_calls", inline_calls);  // again: those of the objective, and all if `changes` needed no inlining
  pass("take_chunks", take_chunks);    // chunks have gradients of their own
  pass("hoist_steps", hoist_steps);    // products hoisted out of steps have hoisted gradients
  if (step.trained.hold) pass("hold", step.trained.hold);
  std::vector<ValueId> gradients;
  pass("differentiate",
       [&](Graph& h) { gradients = gradients_of_loss(h, step.parameters(h), step.trained.most_logits(h)); });
  pass("update", [&](Graph& h) { step.update(h, gradients); });  // the optimizer's text, or sums of gradients
  complete_changes(pass, changes);
  return g;
}

Graph evaluation_graph(Graph g, const Changes& changes, const Trained& trained) {
  const VerifiedPasses pass(g);
  pass("inline_calls", inline_calls);  // again: as above
  if (trained.hold) pass("hold", trained.hold);
  pass("compute_by_rows", [&](Graph& h) { compute_by_rows(h, trained.most_logits(h)); });
  complete_changes(pass, changes);
  return g;
}

namespace {

Graph rounded(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols,
              const ProductType& products, bool hoists) {
  const VerifiedPasses pass(g);
  pass("inline_calls", inline_calls);  // again: training left none; a function that is only run still has its calls
  pass("simplify", simplify);          // equal values are shared, so an assignment matches each once
  pass("bind_symbols",
       [&](const Graph& h) { return bind_symbols(h, symbols); });  // again after training, which has bound all
  pass("chunks of scans", [&](Graph& h) { hoists ? take_chunks(h) : drop_chunks(h); });
  if (hoists) pass("hoist_steps", hoist_steps);  // again: gradients, and graphs that run without them
  pass("assign_formats", [&](Graph& h) { assign_formats(h, assignments); });  // again: formats of stored values
  pass("decode_in_steps", decode_in_steps);
  pass("round_products", [&](Graph& h) { round_products(h, products); });  // mixed precision
  if (hoists) pass("hoist_steps", hoist_steps);  // again: weights that steps read are rounded before them
  pass("split_contracts", split_contracts);      // products take the shape of their users
  pass("split_contracts in steps", [](Graph& h) { in_bodies(h, split_contracts); });
  pass("simplify", simplify);  // again: reshapes around products meet and go, and numbers enable more (extents of 1)
  pass("split_contracts", split_contracts);  // again: reshapes that were several are one
  pass("simplify", simplify);
  pass("trim_scans", trim_scans);
  return g;
}

}  // namespace

Graph with_rounded_products(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols,
                            const ProductType& products) {
  return rounded(std::move(g), assignments, symbols, products, true);
}

Pipeline stepwise_pipeline(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols,
                           const ProductType& products) {
  return plan_graph(rounded(std::move(g), assignments, symbols, products, false));
}

Pipeline run_pipeline(Graph g, const std::vector<FormatAssignment>& assignments, const Bindings& symbols,
                      const ProductType& products, const Recompute& recompute) {
  const Graph rounded = with_rounded_products(std::move(g), assignments, symbols, products);
  return plan_recomputing(rounded, recompute, plan_graph);  // `fit` plans again to measure memory
}

Pipeline plan_graph(const Graph& g) {
  Pipeline done{fuse(g), {}};
  done.memory = plan_memory(done.plan);  // assigns memory
  // Fewer launches, where that takes little more memory.
  constexpr double kMostMemory = 1.25;
  Pipeline together{bring_together(done.plan), {}};
  const bool has_any = std::ranges::any_of(together.plan.groups, [](const Group& group) { return group.beside > 0; });
  if (!has_any) return done;
  together.memory = plan_memory(together.plan);
  const bool fits = double(together.memory.arena_bytes) <= kMostMemory * double(done.memory.arena_bytes);
  return fits ? std::move(together) : std::move(done);
}

Plan fuse(Graph g) {
  const VerifiedPasses pass(g);
  pass("separate_attention", separate_attention);  // later uses of scores get copies
  pass("repeat_casts", repeat_casts);              // parameters are rounded again for the backward pass
  pass("narrow_iotas", narrow_iotas);              // positions vary along one axis
  pass("clone_masks", clone_masks);                // values cheaper to recompute than to read join their readers
  pass("convert_casts", convert_casts);            // casts between scalars are maps
  pass("separate_fits", separate_fits);            // scales of casts become reductions
  pass("copy_loads", copy_loads);                  // values that kernels cannot read in place are copied
  pass("order_operands", order_operands);          // weights are a product's second operand
  Plan plan{std::move(g), {}};
  Partition p(plan.graph);
  const auto group = [&](const char* name, void (*merge)(Partition&)) { merge(p), p.verify_or_die(name); };
  group("group_attention", group_attention);                      // first: later passes would split it
  group("group_attention_gradients", group_attention_gradients);  // as well
  group("group_epilogues", group_epilogues);                      // maps after products, before rows take them
  group("group_windows", group_windows);                          // zero padding of images that products read
  group("group_codes", group_codes);                              // maps that casts into bytes read
  group("group_product_codes", group_product_codes);              // .. and products that those or the casts read
  group("group_reductions", group_reductions);                    // maps that reductions read
  group("group_rows", group_rows);                                // maps, reductions and updates over the same rows
  group("group_siblings", group_siblings);                        // readers of the same tensor
  group("group_small", group_small);                              // few numbers, before or after everything else
  plan.groups = order_groups(p);                                  // in the order they run
  return plan;
}

}  // namespace lumen::graph
