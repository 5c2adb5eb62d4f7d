// Another model that an objective learns from (distillation): its weights stay as their file holds them, beside those
// that are trained. Proved by tests/model/recipe/objective/objective_trainer_test.cpp.
#pragma once

#include <string>

#include "graph/ir/build.h"
#include "model/arch/model.h"

namespace lumen::model {

// A weight of the teacher as an input of graphs.
std::string teacher_input(const std::string& weight);
bool is_teacher_input(const std::string& name);

// Error when its tokens are not those of `model`.
void require_teacher(const Model& model, const Model& teacher);

// Its logits, [B, T, V], weights by the names above. `starts`: sequences of a row are kept apart.
graph::Graph teacher_logits(const Model& teacher, bool starts);
// The first result of another graph, at the end of a graph; its inputs are found there by name, or added.
graph::ValueId call_beside(graph::Builder& build, const graph::Graph& other);
// How far each position's distribution is from the teacher's: KL(teacher || policy), nats, [B, T]. `policy` and
// `teacher` give logits, all extents numbers.
graph::Graph divergence_from(const Library& library, graph::Graph policy, const graph::Graph& teacher);
// How its weights are held, of those that the graph reads.
std::vector<graph::FormatAssignment> teacher_formats(const Model& teacher, const graph::Graph& used);

}  // namespace lumen::model
