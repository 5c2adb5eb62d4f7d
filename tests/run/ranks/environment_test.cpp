// Needs: cpu. What torchrun, Slurm and Open MPI say in a process's environment.
#include "run/ranks/environment.h"

#include <gtest/gtest.h>

#include <map>

namespace lumen::run {
namespace {

std::optional<RanksOfEnvironment> read(const std::map<std::string, std::string>& variables) {
  return ranks_of_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(RanksOfEnvironment, NothingWithoutALauncher) {
  EXPECT_FALSE(read({}));
  EXPECT_FALSE(read({{"RANK", "0"}}));
  EXPECT_FALSE(read({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_FALSE(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_NODELIST", "a"}}));
  EXPECT_FALSE(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));  // the job's script itself
}

TEST(RanksOfEnvironment, Torchrun) {
  std::map<std::string, std::string> v = {{"RANK", "5"},
                                          {"WORLD_SIZE", "8"},
                                          {"LOCAL_RANK", "1"},
                                          {"LOCAL_WORLD_SIZE", "4"},
                                          {"MASTER_ADDR", "first"},
                                          {"MASTER_PORT", "29400"},
                                          {"TORCHELASTIC_RUN_ID", "none"}};
  const auto e = read(v);
  ASSERT_TRUE(e);
  EXPECT_EQ(std::string(e->starter_name()), "torchrun");
  EXPECT_EQ(e->place.rank, 5);
  EXPECT_EQ(e->place.size, 8);
  EXPECT_EQ(e->place.local_rank, 1);
  EXPECT_EQ(e->place.local_size, 4);
  EXPECT_EQ(e->host, "first");
  EXPECT_EQ(e->port, 29401);  // the launcher itself listens at its port
  v["LUMEN_PORT"] = "1234";
  v["LUMEN_TOKEN"] = "secret";
  EXPECT_EQ(read(v)->port, 1234);
  EXPECT_EQ(read(v)->token, "secret");
  v["RANK"] = "8";
  EXPECT_THROW(read(v), Error);
  v["RANK"] = "x";
  EXPECT_THROW(read(v), Error);
  v["RANK"] = "1";
  v["MASTER_PORT"] = "70000";
  EXPECT_THROW(read(v), Error);
}

TEST(RanksOfEnvironment, Slurm) {
  const auto e = read({{"SLURM_PROCID", "3"},
                       {"SLURM_NTASKS", "4"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"},
                       {"SLURM_STEP_NODELIST", "node[07-08]"},
                       {"SLURM_JOB_ID", "123456"}});
  ASSERT_TRUE(e);
  EXPECT_EQ(std::string(e->starter_name()), "Slurm");
  EXPECT_EQ(e->place.rank, 3);
  EXPECT_EQ(e->place.local_rank, 1);
  EXPECT_EQ(e->place.local_size, 2);
  EXPECT_EQ(e->host, "node07");
  EXPECT_EQ(e->port, 29500 + 3456);
  EXPECT_EQ(e->token, "/123456");
}

TEST(RanksOfEnvironment, OpenMpi) {
  const auto e = read({{"OMPI_COMM_WORLD_RANK", "2"},
                       {"OMPI_COMM_WORLD_SIZE", "4"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                       {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                       // An allocation of Slurm around it.
                       {"SLURM_PROCID", "0"},
                       {"SLURM_NTASKS", "2"}});
  ASSERT_TRUE(e);
  EXPECT_EQ(std::string(e->starter_name()), "Open MPI");
  EXPECT_EQ(e->place.rank, 2);
  EXPECT_EQ(e->place.local_size, 2);
}

TEST(RanksOfEnvironment, FirstHost) {
  EXPECT_EQ(first_host("a"), "a");
  EXPECT_EQ(first_host("a,b"), "a");
  EXPECT_EQ(first_host("node[01-04,07],login"), "node01");
  EXPECT_EQ(first_host("node[3,5]"), "node3");
  EXPECT_EQ(first_host("rack[1-2]-eth0"), "rack1-eth0");
  for (const char* bad : {"", "[", "n[", "n[]", "n[1", ",", "a b"}) EXPECT_THROW(first_host(bad), Error) << bad;
}

}  // namespace
}  // namespace lumen::run
