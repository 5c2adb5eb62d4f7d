// Needs: none. Which machine of the table a GPU gets.
#include "run/device/gpu/gpu_match.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace lumen::run {
namespace {

std::vector<machine::MachineRef> table_of(std::initializer_list<const char*> names) {
  std::vector<machine::MachineRef> table;
  for (const char* name : names) {
    auto m = std::make_shared<machine::Machine>();
    m->name = name;
    m->kind = machine::Kind::gpu;
    table.push_back(std::move(m));
  }
  auto processor = std::make_shared<machine::Machine>();
  processor->name = "sm_30";  // a processor, whatever its name
  table.push_back(std::move(processor));
  return table;
}

std::string matched(const std::string& architecture) {
  static const auto table = table_of({"sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120", "gfx906", "gfx90a", "gfx942",
                                      "gfx1030", "gfx1100", "gfx1102", "gfx11-generic"});
  const GpuMatch match = match_gpu(architecture, table);
  return match.machine ? match.machine->name : "";
}

TEST(GpuMatch, TheNewestCodeAGenerationExecutes) {
  EXPECT_EQ(matched("sm_80"), "sm_80");
  EXPECT_EQ(matched("sm_86"), "sm_80");
  EXPECT_EQ(matched("sm_90"), "sm_90a");
  EXPECT_EQ(matched("sm_100"), "sm_100a");
  EXPECT_EQ(matched("sm_103"), "sm_89") << "code with a letter runs on its own generation alone";
  EXPECT_EQ(matched("sm_121"), "sm_120");
  EXPECT_EQ(matched("sm_75"), "");
  EXPECT_EQ(matched("sm_35"), "");
}

TEST(GpuMatch, FeaturesOfAnArchitectureDoNotMatter) {
  EXPECT_EQ(matched("gfx90a:sramecc+:xnack-"), "gfx90a");
  EXPECT_EQ(matched("gfx942"), "gfx942");
  EXPECT_EQ(matched("gfx1103"), "gfx11-generic");
  EXPECT_EQ(matched("gfx1151:xnack-"), "gfx11-generic");
  EXPECT_EQ(matched("gfx1102"), "gfx1102") << "its own row comes first";
  EXPECT_EQ(matched("gfx1033"), "");
  EXPECT_EQ(matched("gfx803"), "");
  EXPECT_EQ(matched("nonsense"), "");
  EXPECT_EQ(matched(""), "");
}

TEST(GpuMatch, SaysWhatItChoseAndWhy) {
  const auto table = table_of({"sm_80", "gfx1100"});
  EXPECT_EQ(match_gpu("sm_80", table).remark, "");
  EXPECT_NE(match_gpu("sm_86", table).remark.find("code for sm_80"), std::string::npos);
  EXPECT_NE(match_gpu("sm_70", table).remark.find("supported are sm_80"), std::string::npos);
  EXPECT_NE(match_gpu("gfx1103", table).advice.find("HSA_OVERRIDE_GFX_VERSION=11.0.0"), std::string::npos);
  const GpuMatch generic = match_gpu("gfx1103", table_of({"gfx1100", "gfx11-generic"}));
  EXPECT_NE(generic.remark.find("generic code (gfx11-generic)"), std::string::npos) << generic.remark;
  EXPECT_NE(match_gpu("gfx900", table).advice.find("--device cpu"), std::string::npos);
  EXPECT_NE(match_gpu("sm_90", {}).remark.find("no code"), std::string::npos);
}

}  // namespace
}  // namespace lumen::run
