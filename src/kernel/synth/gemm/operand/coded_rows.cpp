#include "kernel/synth/gemm/operand/coded_rows.h"

#include <algorithm>

#include "graph/match/access.h"
#include "kernel/synth/gemm/choose.h"
#include "kernel/synth/gemm/operand/dot_prepare.h"
#include "kernel/synth/order/order.h"

namespace lumen::synth {

bool is_held_in_format(const graph::Graph& g, const DotProblem& p) {
  const DotLoad &a = p.loads[0], &b = p.loads[1];
  if (a.kind != DotLoad::Kind::packed || a.scratch >= 0 || g[a.source].op == graph::Op::input_) return false;
  const bool in_memory = b.kind == DotLoad::Kind::packed || b.kind == DotLoad::Kind::memory;
  return (in_memory && b.scratch < 0 && graph::unwritten(g)[b.source]) || is_weight_made_here(g, p);
}

bool is_weight_made_here(const graph::Graph& g, const DotProblem& p) {
  const DotLoad& b = p.loads[1];
  return b.kind == DotLoad::Kind::packed && b.scratch < 0 && g[b.source].op != graph::Op::input_;
}

bool are_codes(const DotProblem& p) {
  return std::all_of(p.loads.begin(), p.loads.begin() + 2,
                     [](const DotLoad& l) { return l.kind == DotLoad::Kind::packed && plain_field(*l.format); });
}

int64_t CodedRows::most() const {
  return std::max(-form.q_min, form.q_max);
}

std::optional<CodedRows> coded_rows(const DotProblem& p) {
  const DotLoad& a = p.loads[0];
  if (a.kind != DotLoad::Kind::packed || p.pick || !unpacks_along(p, 0, p.k)) return std::nullopt;
  const Format& f = *a.format;
  if (kActivationGroup % f.block != 0 || f.tile_bytes > 0) return std::nullopt;
  const FormatFacts facts = facts_of(f);
  if (!facts.affine || facts.affine->offset) return std::nullopt;
  CodedRows out{*facts.affine};
  if (is_constant_in_row(f, out.form.scale)) out.form.group = kWholeRow;
  if (out.form.q_min < -128 || out.form.q_max > 127 || out.form.group % kActivationGroup != 0) return std::nullopt;
  return out;
}

DotProblem with_plain_rows(DotProblem p) {
  p.loads[0].kind = DotLoad::Kind::memory;
  p.loads[0].scalar = Scalar::f32;
  p.loads[0].format = nullptr;
  return p;
}

std::optional<DotProblem> decode_rows(const graph::Graph& g, const DotProblem& p, const machine::Machine& m,
                                      Synthesis& out) {
  if (p.loads[0].kind != DotLoad::Kind::packed) return std::nullopt;
  DotProblem whole = p;  // rows that pick matrices are ordinary rows here
  whole.pick.reset();
  const auto made = prepare_operand(whole, 0, Scalar::f32, out.scratch.size());
  if (!made) return std::nullopt;
  out.scratch.push_back(made->bytes);
  out.steps.push_back(write_prepare(g, whole, 0, *made, m));
  DotProblem decoded = made->problem;
  decoded.pick = p.pick;
  return decoded;
}

}  // namespace lumen::synth
