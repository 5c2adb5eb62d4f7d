// needs: cpu. Plans of one kernel give the same bits; programs try them while they run and remember the fastest.
#include "run/engine/program/tune.h"

#include <unistd.h>

#include <fstream>

#include "graph/match/access.h"
#include "graph/pipeline/pipeline.h"
#include "number/library/library.h"
#include "run/device/cpu/cpu.h"
#include "run/engine/cache/user_cache.h"
#include "run/engine/compile/repeat.h"
#include "tests/run/damage.h"
#include "tests/run/graphs.h"

namespace lumen::run {
namespace {

using graph::Role;

Autotuner::Plan named(const char* name, int number) {
  return {nullptr, {number}, name, {number, name}};
}

// A autotuner fed with the time each plan takes; returns the plan that won and how often each was launched.
std::string winner(const std::vector<double>& seconds, std::vector<int>* launches) {
  std::string decided;
  bool asked = false;
  Autotuner autotuner(named("0", 0), [&] { asked = true; }, [&](const Autotuner::Plan& best) { decided = best.plan; });
  launches->assign(seconds.size(), 0);
  for (int i = 0; i < 1000 && !autotuner.done(); ++i) {
    const int plan = static_cast<int>(autotuner.next().launch_config.tasks);
    ++(*launches)[static_cast<size_t>(plan)];
    autotuner.record(seconds[static_cast<size_t>(plan)]);
    if (!asked) continue;
    std::vector<Autotuner::Plan> others;
    for (size_t k = 1; k < seconds.size(); ++k) others.push_back(named(std::to_string(k).c_str(), static_cast<int>(k)));
    autotuner.offer(std::move(others));
    asked = false;
  }
  EXPECT_TRUE(autotuner.done());
  EXPECT_EQ(autotuner.next().plan, autotuner.best().plan);
  return autotuner.best().plan;
}

TEST(Tune, TheFastestPlanWinsAndHopelessOnesAreDroppedSoon) {
  std::vector<int> launches;
  EXPECT_EQ(winner({0.1, 0.2, 0.05, 0.08}, &launches), "2");
  EXPECT_EQ(launches[1], 2);
  EXPECT_EQ(launches[2], Autotuner::kRounds);
  EXPECT_EQ(winner({0.1, 0.099, 0.11}, &launches), "0");  // too little gained
  EXPECT_EQ(winner({0.1}, &launches), "0");               // nothing to try
}

// Nothing is tried of kernels that take no time.
TEST(Tune, ShortWorkIsLeftAlone) {
  bool asked = false;
  Autotuner autotuner(named("0", 0), [&] { asked = true; }, [](const Autotuner::Plan&) {});
  for (int i = 0; i < 100; ++i) {
    autotuner.next();
    autotuner.record(Autotuner::kWorthSeconds / 200);
  }
  EXPECT_FALSE(asked);
  Autotuner apart(named("0", 0), [&] { asked = true; }, [](const Autotuner::Plan&) {}, Autotuner::kWorthApart);
  for (int i = 0; i < 100; ++i) {
    apart.next();
    apart.record(Autotuner::kWorthSeconds / 200);
  }
  EXPECT_TRUE(asked) << "a GPU's are tried sooner";
}

graph::Graph product(const FormatRef& format, int64_t rows, int64_t n, int64_t k) {
  graph::Graph g;
  graph::Builder b(g);
  const auto x = b.input("x", Role::data, f32({rows, k}));
  Type type = f32({n, k});
  type.element.format = format;
  auto w = b.input("w", Role::parameter, type);
  if (format) w = b.cast(w, {Scalar::f32, nullptr});
  g.results = {b.contract(x, w, "mk", "nk", "mn")};
  g.result_names = {"y"};
  return g;
}

std::vector<float> floats(Program& program) {
  return floats_of(program.result("y"));
}

void bind_random(Engine& engine, Program& program) {
  for (const std::string& name : program.input_names()) {
    const Type type = program.input_type(name);
    Type plain = type;
    plain.element.format = nullptr;
    const Tensor t = random_tensor(plain, name == "x" ? 1 : 2);
    auto tensor = std::make_shared<DeviceTensor>(engine.device(), type);
    std::vector<uint8_t> bytes = to_bytes(t);
    if (type.element.format)
      bytes = engine.encode(type.element.format, reinterpret_cast<const float*>(bytes.data()), type.shape[0].number(),
                            type.shape[1].number());
    tensor->upload(bytes.data(), static_cast<int64_t>(bytes.size()));
    program.bind(name, tensor);
  }
}

class TunePlans : public testing::TestWithParam<const char*> {};

TEST_P(TunePlans, AllPlansGiveTheSameBits) {
  const FormatRef format = *GetParam() ? FormatLibrary::builtin().get(GetParam()) : nullptr;
  for (const machine::MachineRef& m : machine::all_machines()) {
    if (m->kind != machine::Kind::cpu || !machine::runs_here(*m)) continue;
    auto small = std::make_shared<machine::Machine>(*m);  // caches so small that K has stages
    small->l1_bytes = 4 << 10;
    small->l2_bytes = 64 << 10;
    Engine::Options o = options();
    o.machine = small;
    Engine engine(o);
    const graph::Graph g = product(format, 75, 90, 768);
    const graph::Pipeline p = graph::run_pipeline(g, {}, {});
    ASSERT_EQ(p.plan.groups.size(), 1U);
    const GroupForm form = form_of(p.plan.graph, p.plan.groups[0], values_of(p.plan.graph));
    const synth::Synthesis first = synthesize_form(p.plan, p.plan.groups[0], form, *small, {});
    EXPECT_GT(first.candidates, 1) << m->name;
    const auto program = engine.compile(g, {});
    bind_random(engine, *program);
    program->run();
    const std::vector<float> want = floats(*program);
    for (int candidate = 1; candidate < first.candidates; ++candidate) {
      CompileOptions with;
      with.candidate = candidate;
      const auto other = engine.compile(g, with);
      bind_random(engine, *other);
      other->run();
      const std::vector<float> got = floats(*other);
      ASSERT_EQ(0, std::memcmp(want.data(), got.data(), want.size() * 4)) << m->name << " " << other->explain();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, TunePlans, testing::Values("", "q4_0", "q4_k", "nf4", "fp8_tensor"));

// A short run ends before other kernels' plans are compiled; what it decided is there in the next one.
TEST(Tune, DecisionsDoNotWaitForJobs) {
  const TemporaryFolder folder;
  const auto cache = std::make_shared<KernelCache>(open_cpu(machine::native_machine(), 1, load_here),
                                                   open_cache(folder.path().string()));
  std::atomic<bool> begun = false, ends = false;
  {
    Tuner tuner(cache, 1);
    tuner.later([&] {
      begun = true;
      while (!ends) std::this_thread::yield();
    });
    while (!begun) std::this_thread::yield();
    tuner.later([&] { EXPECT_FALSE(cache->kept().read("plans", "0123").empty()); });
    tuner.remember_soon("0123", {3, "plan"});
    EXPECT_EQ(tuner.remembered("0123")->number, 3);
    ends = true;
  }
  const std::optional<ChosenPlan> known = Tuner(cache, 1).remembered("0123");
  ASSERT_TRUE(known.has_value());
  EXPECT_EQ(known->number, 3);
  EXPECT_EQ(known->hash, "plan");
}

TEST(Tune, AProgramTriesPlansAndTheNextOneRemembers) {
  const TemporaryFolder folder;
  const std::filesystem::path plans = folder.path() / ("user-" + std::to_string(::geteuid())) / "plans";
  const auto none_yet = [&] { return !std::filesystem::exists(plans) || std::filesystem::is_empty(plans); };
  Engine::Options o = options(folder.path().string());
  o.tune = true;
  const graph::Graph g = product(FormatLibrary::builtin().get("q8_0"), 512, 1024, 1024);
  std::vector<float> want;
  {
    Engine engine(o);
    const auto program = engine.compile(g, {});
    bind_random(engine, *program);
    program->run();
    want = floats(*program);
    for (int i = 0; i < 2000 && none_yet(); ++i) {
      program->run();
      ASSERT_EQ(want, floats(*program));
      engine.finish_tuning();
    }
    ASSERT_FALSE(none_yet());
  }
  const std::filesystem::path file = std::filesystem::directory_iterator(plans)->path();
  const std::string kept = SealedFolder(folder.path()).read("plans", file.filename());
  ASSERT_FALSE(kept.empty());
  const auto run_again = [&] {
    Engine engine(o);
    const auto program = engine.compile(g, {});
    bind_random(engine, *program);
    program->run();
    EXPECT_EQ(want, floats(*program));
    return program->explain();
  };
  EXPECT_EQ(run_again().find("tuned") != std::string::npos, kept[0] != '0');
  // What is on disk may be anything.
  for (const char* text : {"7", "-1 x\n", "1 0000\n", "99999 x\n", "99999999999999 x\n", "1\n", "x"}) {
    SealedFolder(folder.path()).write("plans", file.filename(), text);
    EXPECT_EQ(run_again().find("tuned"), std::string::npos) << text;
  }
  std::ofstream(file) << kept;  // without a seal
  EXPECT_EQ(run_again().find("tuned"), std::string::npos);
  SealedFolder(folder.path()).write("plans", file.filename(), kept);
  for (const auto& [what, content] : damaged_forms(read_file(file))) {
    put_in_place(file, content);
    EXPECT_EQ(run_again().find("tuned"), std::string::npos) << what;
    EXPECT_EQ(SealedFolder(folder.path()).read("plans", file.filename()), "") << what;
  }
}

}  // namespace
}  // namespace lumen::run
