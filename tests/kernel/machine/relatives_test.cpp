// Needs: none. The rows that are like another's: found by name, told apart from it, with its instructions and no
// others.
#include "kernel/machine/relatives.h"

#include <gtest/gtest.h>

#include <set>

namespace lumen {
namespace {

TEST(Relatives, AreFoundByNameAndNotInTheTable) {
  std::set<std::string> table;
  for (const auto& m : machine::all_machines()) table.insert(m->name);
  int generics = 0;
  for (const auto& m : machine::relatives()) {
    EXPECT_TRUE(table.insert(m->name).second) << m->name << " is there twice";
    EXPECT_EQ(machine::find_machine(m->name), m);
    EXPECT_GT(m->units, 0);
    if (m->kind == machine::Kind::gpu) {
      EXPECT_EQ(m->cpu, m->name);
    } else if (!m->tiles.empty()) {  // of outer products, at a streaming length
      EXPECT_TRUE(m->name.ends_with("-" + std::to_string(32 * m->tiles[0].rows))) << m->name;
    } else {
      EXPECT_TRUE(m->scalable) << m->name;
      EXPECT_TRUE(m->name.ends_with(std::to_string(m->vector_bits))) << m->name;
    }
    EXPECT_GT(m->costs.cores, 0) << m->name;
    generics += machine::is_generic(*m);
  }
  for (const char* name :
       {"gfx1031", "gfx1032",      "gfx1034",         "gfx1035",       "gfx1036",       "gfx1150",   "gfx1152",
        "gfx1153", "gfx9-generic", "gfx10-3-generic", "gfx11-generic", "gfx12-generic", "sve-128",   "sve-256",
        "sve-512", "sve-1024",     "sve-2048",        "sve-i8mm-256",  "sve2-1024",     "sve2-2048", "sme-128",
        "sme-256", "sme-512",      "sme-1024",        "sme-2048"})
    EXPECT_TRUE(table.contains(name)) << name;
  EXPECT_EQ(generics, 4);
}

std::set<std::string> rows_of(const machine::Machine& m) {
  std::set<std::string> names;
  for (const machine::Row& row : m.rows) names.insert(row.name);
  return names;
}

// A generation's generic code multiplies by nothing that a member of it lacks.
TEST(Relatives, GenericCodeIsWithinEveryMember) {
  int members = 0;
  for (const auto& m : machine::all_machines()) {
    const std::string generic = machine::generic_of(m->name);
    if (generic.empty()) continue;
    ++members;
    const auto g = machine::find_machine(generic);
    EXPECT_EQ(g->wave, m->wave) << m->name;
    EXPECT_LE(g->shared_bytes, m->shared_bytes) << m->name;
    const std::set<std::string> own = rows_of(*m);
    for (const std::string& row : rows_of(*g)) EXPECT_TRUE(own.contains(row)) << m->name << " lacks " << row;
    EXPECT_EQ(g->matrices.size(), m->matrices.size()) << m->name;
  }
  EXPECT_EQ(members, 8);
  EXPECT_EQ(machine::generic_of("gfx1103"), "gfx11-generic");
  EXPECT_EQ(machine::generic_of("gfx900"), "gfx9-generic");
  EXPECT_TRUE(machine::find_machine("gfx9-generic")->dots.empty()) << "gfx900 has none";
  for (const char* none : {"gfx90a", "gfx942", "gfx1250", "gfx1013", "gfx803", "sm_90", ""})
    EXPECT_EQ(machine::generic_of(none), "") << none;
}

}  // namespace
}  // namespace lumen
