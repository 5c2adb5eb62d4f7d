// The teacher model of an objective (distillation): its weights keep the types of their file, next to the trained ones.
// Proved by tests/model/recipe/objective/objective_trainer_test.cpp.
#pragma once

#include <string>

#include "graph/ir/build.h"
#include "model/arch/model.h"

namespace lumen::model::recipe {

// The graph input of a teacher's weight.
std::string teacher_input(const std::string& weight);
bool is_teacher_input(const std::string& name);

// Error when its vocabulary differs from that of `model`.
void require_teacher(const arch::Model& model, const arch::Model& teacher);

// Its logits, [B, T, V], with weights named by teacher_input. `starts`: sequences packed into a row do not attend to
// each other.
graph::Graph teacher_logits(const arch::Model& teacher, bool starts);
// Inlines another graph at the end of a graph and returns its first result; inputs are matched by name, or added.
graph::ValueId call_beside(graph::Builder& build, const graph::Graph& other);
// The divergence of each position's distribution from the teacher's: KL(teacher || policy), nats, [B, T]. `policy` and
// `teacher` give logits, all extents numbers.
graph::Graph divergence_from(const arch::Library& library, graph::Graph policy, const graph::Graph& teacher);
// The formats of the teacher's weights that the graph reads.
std::vector<graph::FormatAssignment> teacher_formats(const arch::Model& teacher, const graph::Graph& used);

}  // namespace lumen::model::recipe
