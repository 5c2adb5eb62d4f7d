#include "run/engine/portable/portable.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/error.h"
#include "emit/emit.h"
#include "graph/fuse/plan.h"
#include "kernel/loop/text.h"
#include "kernel/synth/synth.h"
#include "run/engine/compile/compile.h"
#include "run/engine/compile/repeat.h"
#include "run/engine/compile/scan.h"

namespace lumen::run {
namespace {

using graph::ValueId;

constexpr const char* kPortableHead =
    "#include <stdint.h>\n"
    "/* What compilers may call for copies: no library is needed. */\n"
    "__attribute__((weak)) void* memcpy(void* to, const void* from, __SIZE_TYPE__ n) {\n"
    "  for (__SIZE_TYPE__ i = 0; i < n; ++i) ((volatile unsigned char*)to)[i] = ((const unsigned char*)from)[i];\n"
    "  return to;\n}\n"
    "__attribute__((weak)) void* memset(void* to, int x, __SIZE_TYPE__ n) {\n"
    "  for (__SIZE_TYPE__ i = 0; i < n; ++i) ((volatile unsigned char*)to)[i] = (unsigned char)x;\n"
    "  return to;\n}\n";

// Runtime functions that a 32-bit processor's compiler calls for 64-bit numbers, and for rounding without an
// instruction; the compiler's own library takes precedence if it is linked.
constexpr const char* kRuntime =
    "static uint64_t divided(uint64_t n, uint64_t d, uint64_t* rest) {\n"
    "  uint64_t q = 0, r = 0;\n"
    "  for (int i = 63; i >= 0; --i) {\n"
    "    r = r << 1 | (n >> i & 1);\n"
    "    if (r >= d) {\n      r -= d;\n      q |= (uint64_t)1 << i;\n    }\n"
    "  }\n"
    "  *rest = r;\n  return q;\n}\n"
    "static uint64_t size_of(int64_t x) { return x < 0 ? -(uint64_t)x : (uint64_t)x; }\n"
    "__attribute__((used)) static int64_t lumen_divided(int64_t a, int64_t b, int64_t* rest) {\n"
    "  uint64_t r, q = divided(size_of(a), size_of(b), &r);\n"
    "  *rest = (int64_t)(a < 0 ? -r : r);\n"
    "  return (int64_t)((a < 0) != (b < 0) ? -q : q);\n}\n"
    "/* The quotient in the first two registers, what remains in the next two. */\n"
    "__attribute__((weak, naked)) void __aeabi_ldivmod(void) {\n"
    "  __asm__(\n"
    "      \"push {r4, lr}\\n sub sp, #16\\n add r4, sp, #8\\n str r4, [sp]\\n bl lumen_divided\\n\"\n"
    "      \"ldr r2, [sp, #8]\\n ldr r3, [sp, #12]\\n add sp, #16\\n pop {r4, pc}\\n\");\n}\n"
    "/* The upper 26 bits, the last of which says whether anything is below, are rounded once, then scaled. */\n"
    "static float rounded(uint64_t x) {\n"
    "  int shift = 0;\n"
    "  while (x >> shift >> 26) ++shift;\n"
    "  const uint32_t top = (uint32_t)(x >> shift) | ((x & (((uint64_t)1 << shift) - 1)) != 0);\n"
    "  union {\n    uint32_t bits;\n    float value;\n  } scale = {(uint32_t)(127 + shift) << 23};\n"
    "  return (float)top * scale.value;\n}\n"
    "__attribute__((weak, pcs(\"aapcs\"))) float __aeabi_ul2f(uint64_t x) { return rounded(x); }\n"
    "__attribute__((weak, pcs(\"aapcs\"))) float __aeabi_l2f(int64_t x) {\n"
    "  return x < 0 ? -rounded(size_of(x)) : rounded((uint64_t)x);\n}\n"
    "__attribute__((weak)) float roundevenf(float x) {\n"
    "  const float large = x < 0 ? -8388608.0f : 8388608.0f;\n"
    "  if (!(x > -8388608.0f && x < 8388608.0f)) return x;\n"
    "  volatile float sum = x + large;\n"
    "  return sum - large;\n}\n";

class PortableWriter {
 public:
  // `author`: the original graph, which defines the input numbers: passes may have found some inputs unused.
  PortableWriter(const graph::Graph& author, const graph::Pipeline& p, const machine::Machine& target,
                 const CompileOptions& options, const std::function<std::vector<uint8_t>(const std::string&)>& bytes)
      : p_(p), g_(p.plan.graph), target_(target), bytes_(bytes) {
    for (const ValueId v : author.inputs())
      if (author[v].attributes.role == graph::Role::data) data_.push_back(author[v].attributes.name);
    options_.exact = options.exact;
    options_.invariant = options.invariant;
    options_.products = options.products.scalar;
  }

  PortableProgram run() {
    ValueFacts facts = values_of(g_);
    facts.alignment.assign(facts.alignment.size(), kValueAlignment);  // of the constants below
    const PlanAddresses all = {[this](ValueId v) { return place(v); }, aligned(p_.memory.arena_bytes), 0};
    add_plan(p_.plan, facts, all);
    for (size_t i = 0; i < g_.results.size(); ++i) {
      const graph::Type& type = g_[g_.results[i]].type;
      calls_ +=
          fmt::format("  memcpy(results[{}], {}, {});\n", i, written(place(g_.results[i])), graph::byte_size(type));
    }
    std::string source = kPortableHead;
    if (target_.triple.starts_with("thumb")) source += kRuntime;
    for (const std::string& symbol : symbols_)
      source += fmt::format("void {}(void* const* buffers, int64_t begin, int64_t end, int64_t* status);\n", symbol);
    source += constants_;
    source +=
        fmt::format("static uint8_t arena[{}] __attribute__((aligned(64)));\n", std::max<int64_t>(out_.arena_bytes, 1));
    source += "int lumen_run(const void* const* inputs, void* const* results) {\n  int64_t status[2] = {0, 0};\n";
    out_.source = source + calls_ + "  return 0;\n}\n";
    out_.kernels = std::ssize(kernels_);
    out_.object = emit::emit(kernels_, target_, emit::Output::object);
    return std::move(out_);
  }

 private:
  // The address of a value of the whole graph.
  BufferAddress place(ValueId v) {
    const graph::Slot& slot = p_.memory.slots[v];
    LUMEN_CHECK(slot.where != graph::Slot::Where::none, "value %{} is not in memory", v);
    if (slot.where == graph::Slot::Where::arena) return {BufferAddress::In::arena, slot.offset};
    const graph::Node& owner = g_[slot.owner];
    if (owner.op == graph::Op::input_ && owner.attributes.role == graph::Role::data) {
      const auto number = std::find(data_.begin(), data_.end(), owner.attributes.name);
      LUMEN_CHECK(number != data_.end(), "'{}' is no input", owner.attributes.name);
      return {BufferAddress::In::input, number - data_.begin()};
    }
    if (owner.op == graph::Op::input_ && owner.attributes.role == graph::Role::state)
      throw user_error("'{}' is a state: code without an engine has none", owner.attributes.name);
    const auto [known, fresh] = named_.try_emplace(slot.owner);
    if (fresh) known->second = constant(owner);
    return known->second;
  }

  // An address as a C expression, in the variables of the enclosing loops.
  static std::string written(const BufferAddress& at) {
    std::string text = at.in == BufferAddress::In::arena      ? fmt::format("arena + {}", at.at)
                       : at.in == BufferAddress::In::constant ? fmt::format("(uint8_t*)constant{}", at.at + 1)
                                                              : fmt::format("(uint8_t*)inputs[{}]", at.at);
    if (at.offset != 0) text += fmt::format(" + {}", at.offset);
    for (size_t loop = 0; loop < at.turns.size(); ++loop)
      if (at.turns[loop].bytes != 0)
        text += fmt::format(" + step{}{} * {}", loop, at.turns[loop].alternates ? " % 2" : "", at.turns[loop].bytes);
    return text;
  }

  BufferAddress constant(const graph::Node& node) {
    const std::vector<uint8_t> bytes =
        node.op == graph::Op::input_ ? bytes_(node.attributes.name) : graph::constant_bytes(node);
    LUMEN_CHECK(std::ssize(bytes) == graph::byte_size(node.type), "{} bytes of '{}'", bytes.size(),
                node.attributes.name);
    const BufferAddress at = {BufferAddress::In::constant, constants_written_++};
    constants_ += fmt::format("static const uint8_t constant{}[{}] __attribute__((aligned(64))) = {{",
                              constants_written_, bytes.size());
    for (size_t i = 0; i < bytes.size(); ++i) constants_ += fmt::format("{}{},", i % 32 == 0 ? "\n" : "", bytes[i]);
    constants_ += "};\n";
    out_.constant_bytes += std::ssize(bytes);
    return at;
  }

  std::string symbol_of(loop::Kernel kernel) {
    const std::string text = loop::print(kernel);
    std::string& symbol = known_[text];
    if (!symbol.empty()) return symbol;
    kernel.name += fmt::format("_{}", kernels_.size());  // equal plans with different constants must not share a symbol
    symbol = emit::symbol_name(kernel);
    symbols_.push_back(symbol);
    kernels_.push_back(std::move(kernel));
    return symbol;
  }

  // Adds all groups in order. Each group's scratch reuses the memory of the previous one's.
  void add_plan(const graph::Plan& plan, const ValueFacts& facts, const PlanAddresses& at) {
    reach(at.scratch_at);
    for (const graph::Group& group : plan.groups) {
      if (is_scan(plan.graph, group))
        add_scan(plan, group, facts, at);
      else
        add_group(plan, group, facts, at);
    }
  }

  void add_scan(const graph::Plan& plan, const graph::Group& group, const ValueFacts& facts, const PlanAddresses& at) {
    const ScanPlan scan = plan_scan(plan, group, target_);
    const BodyAddresses of(scan, at, [&](const graph::Node& node) { return constant(node); });
    if (!scan.carry_at.empty())
      add_plan(scan.first_pipeline.plan, facts_of_first(scan, facts),
               {[&](ValueId v) { return of.of_first(v); }, at.scratch_at + scan.first_scratch_at, at.loops});
    const int64_t first = scan.reverse ? scan.steps - 1 : 0;
    calls_ +=
        fmt::format("  for (intptr_t step{0} = {1}; step{0} {2}; {3}step{0}) {{\n", at.loops, first,
                    scan.reverse ? std::string(">= 0") : fmt::format("< {}", scan.steps), scan.reverse ? "--" : "++");
    add_plan(scan.body_pipeline.plan, facts_of_body(scan, facts),
             {[&](ValueId v) { return of.of_body(v); }, at.scratch_at + scan.body_scratch_at, at.loops + 1});
    calls_ += "  }\n";
  }

  void add_group(const graph::Plan& plan, const graph::Group& group, const ValueFacts& facts, const PlanAddresses& at) {
    const GroupForm form = form_of(plan.graph, group, facts);
    const Synthesized made = synthesize_form(plan, group, form, target_, options_);
    std::vector<int64_t> scratch;
    int64_t end = at.scratch_at;
    for (const int64_t bytes : made.scratch) {
      scratch.push_back(end);
      end += aligned(bytes);
    }
    reach(end);
    for (const synth::Step& step : made.steps) {
      std::string buffers;
      for (const synth::Argument& a : step.arguments)
        buffers += (buffers.empty() ? "" : ", ") + (a.from == synth::Argument::From::value
                                                        ? written(at.of(form.values.at(a.index)))
                                                        : fmt::format("arena + {}", scratch.at(a.index)));
      calls_ += fmt::format("  {{\n    void* const buffers[] = {{{}}};\n    {}(buffers, 0, {}, status);\n  }}\n",
                            buffers, symbol_of(step.kernel), step.kernel.tasks);
      calls_ += "  if (status[0]) return 1;\n";
      ++out_.launches;
    }
  }

  void reach(int64_t end) { out_.arena_bytes = std::max(out_.arena_bytes, end); }

  const graph::Pipeline& p_;
  const graph::Graph& g_;
  const machine::Machine& target_;
  const std::function<std::vector<uint8_t>(const std::string&)>& bytes_;
  synth::Options options_;
  std::vector<std::string> data_;             // inputs, by number
  std::map<ValueId, BufferAddress> named_;    // used parameters and constants
  std::map<std::string, std::string> known_;  // symbols by the kernel's text
  std::vector<std::string> symbols_;
  std::vector<loop::Kernel> kernels_;
  std::string constants_, calls_;
  int64_t constants_written_ = 0;
  PortableProgram out_;
};

}  // namespace

PortableProgram portable_program(const graph::Graph& g, const CompileOptions& options, const std::string& machine,
                                 const std::function<std::vector<uint8_t>(const std::string& parameter)>& bytes) {
  const machine::MachineRef target = machine::find_machine(machine);
  if (target->kind != machine::Kind::cpu)
    throw Error(Exit::usage, fmt::format("{} is no processor that runs without a driver", target->name),
                "name a processor, see lumen doctor");
  const graph::Pipeline pipeline = graph::stepwise_pipeline(
      g, options.assignments, options.symbols, options.is_rounded ? graph::ProductType{} : options.products);
  return PortableWriter(g, pipeline, *target, options, bytes).run();
}

}  // namespace lumen::run
