// Machines as data: facts, and rows of instructions. A row holds its meaning (loop IR text), its spelling in LLVM, the
// feature it needs and its cost; tests prove each row against its meaning natively or under an emulator. Names of rows:
// family, operand types, result type; a lookup has the same name on every machine that has one.
//
// May include: base, kernel/loop, number/facts.
// Offers: dense_product.h, relatives.h, without_row.h.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/loop/fragment.h"
#include "kernel/loop/loop.h"
#include "kernel/machine/costs.h"

namespace lumen {
struct FieldType;
struct Format;
}  // namespace lumen

namespace lumen::machine {

// One machine instruction usable from loop IR through `inst`.
struct Row {
  std::string name;     // "dot4.u8i8.i32x16": family, operand types, accumulator
  std::string meaning;  // text of a loop::Function
  std::string llvm;     // intrinsic or a spelling emit knows: "llvm.x86.avx512.vpdpbusd.512"
  std::string needs;    // feature, as LLVM names it: "avx512vnni"
  double cycles = 1;    // issue cost, for the cost model
  // Arguments of the intrinsic if they are not the operands in order: "1:v4i32 2:v4i32 0 =0" are operands 1 and 2 as
  // that type, operand 0, and the constant 0; "0.1 0.0" are two parts of operand 0, the second one first; "0:word
  // =half" is the word of operand 0 that holds this call's input, and the number of the half it uses.
  std::string arguments = {};
};

// Dot families the synthesizer looks for: acc[i] += sum_{j<k} a[i*k+j] * b[i*k+j].
// A dot is one row, acc = row(acc, a, b), or where the machine has none a chain of rows that widen step by step:
//   t = row(a, b); t = pairs(t) or pairs(t, ones); acc = acc + t.
struct DotRow {
  std::string row = {};  // Row::name
  Scalar a = Scalar::u8, b = Scalar::i8, acc = Scalar::i32;
  int k = 4;                // products per lane of acc
  int lanes = 16;           // of acc
  bool accumulates = true;  // row takes acc as its first operand
  std::string pairs = {};   // row that adds adjacent products; empty: none needed
  bool pairs_ones = false;  // `pairs` multiplies: its second operand is ones
  int64_t a_max = 127;      // largest |a| for which no partial sum saturates, for any b in -127..127
};

// Rows of a CPU's matrix unit: acc = row(acc, a, b) on whole tiles, laid out as in memory, in rows of 64 bytes:
//   acc[m][n] += sum_{k} a[m][k] * b[k / word][n][k % word],  word = 4 / bytes of an element.
struct TileRow {
  std::string row;   // Row::name
  Scalar a, b, acc;  // i8, i8, i32 or bf16, bf16, f32
  int rows = 16;     // of acc and a
  int columns = 16;  // of acc
  int k = 64;        // products per element of acc
};

// Encoding of a float of at most 8 bits that hardware computes with directly.
struct FloatCode {
  int exponent = 4, mantissa = 3, bias = 7;
  enum class Special : uint8_t { ieee, all_ones, negative_zero, none } special = Special::all_ones;
  // ieee: the largest exponent is infinity and NaN; all_ones: NaN is all ones, no infinity; negative_zero: NaN is the
  // code of -0, no infinity; none: every code is a number
  friend bool operator==(const FloatCode&, const FloatCode&) = default;
};

// Element type of a matrix instruction's operand.
struct Factor {
  Scalar scalar = Scalar::f16;  // u8 if `code` is set
  std::optional<FloatCode> code;
  int bits() const { return code ? 1 + code->exponent + code->mantissa : scalar_bits(scalar); }
  friend bool operator==(const Factor&, const Factor&) = default;
};
// Encoding of a format that is one number without a scale; nullopt if no hardware supports it.
std::optional<FloatCode> code_of(const Format& f);
std::optional<FloatCode> code_of(const FieldType& t);

// Matrix instructions of GPUs: the lanes of one or more waves execute acc = row(acc, a, b) together, each with its
// fragment (described by Function::collective of the meaning). acc[m][n] += sum_k a[m][k] * b[k][n]. With scales, every
// `scale_group` products along k are multiplied by 2^(sa[m] - 127) * 2^(sb[n] - 127). Hardware rounds float sums in an
// unpublished order; the meaning adds in order of k.
struct MatrixRow {
  std::string row = {};  // Row::name: matrix_name
  int m = 16, n = 16, k = 16;
  Factor a = {}, b = {};
  Scalar acc = Scalar::f32;
  int scale_group = 0;  // 0: no scales
  // The accumulator is less precise than f32: sums are restarted every few instructions and added outside.
  bool short_sums = false;
  bool in_shared = false;       // a and b are in shared memory (loop op `product`)
  bool a_in_registers = false;  // .. but a in registers
  // In shared memory: MN-major (rows are contiguous), in panels of kTransposedColumns columns, instead of K-major.
  bool a_transposed = false, b_transposed = false;
  std::shared_ptr<const loop::Collective> collective = {};
};

// A wave loads parts of a factor together (loop op `load_matrix`): operand 0 of the collective maps elements of the
// rows to lanes. `transposed`: each 8x8 block of 16-bit elements is transposed on the way.
struct MatrixLoad {
  std::string row = {};  // Row::name
  bool transposed = false;
  std::shared_ptr<const loop::Collective> collective = {};
};

enum class Kind : uint8_t { cpu, gpu };
enum class Tier : uint8_t { measured, emulated, compiled };  // how far support is proven

struct Machine {
  std::string name;  // what users type: "x86-64-v3", "avx512-vnni", "neon-dotprod", "native"
  Kind kind = Kind::cpu;
  std::string triple, cpu, features;  // for LLVM
  int vector_bits = 256;              // preferred width
  bool scalable = false;              // vector_bits is a property of the processor, not of the instruction set
  int vector_registers = 16;
  bool fma = true;
  double fma_cycles = 0.5;   // issue cost of one full-width fma
  double load_cycles = 0.5;  // issue cost of one full-width load from the first-level cache
  int64_t l1_bytes = 32 << 10, l2_bytes = 1 << 20;
  // Prefetch distance in bytes of kernels that read a weight once, and the cache it is prefetched into; 0: no prefetch.
  int64_t ahead_bytes = 0;
  loop::Cache ahead_into = loop::Cache::first;
  int wave = 1;                           // lanes that execute together (GPUs)
  int64_t shared_bytes = 0;               // of a block
  int64_t static_shared_bytes = 1 << 30;  // of a block, that a module may declare; more must be requested at launch
  int registers = 0;                      // 32-bit registers a lane may use; 0: a CPU
  int units = 1;                          // multiprocessors of a large GPU of the generation
  // Task sizes: a CPU needs few large tasks, a GPU one small task for each of its thousands of threads.
  int64_t task_divisor = 1;        // tasks are this much smaller than a CPU's
  int64_t busy_tasks = 0;          // tasks that keep the whole machine busy; 0: a few
  int64_t task_bytes = 256 << 10;  // private sums a task may keep
  Tier tier = Tier::compiled;
  // Integer GEMM by matrix instructions; false where nothing has executed them yet.
  bool has_integer_blocks = false;
  std::vector<Row> rows;
  std::vector<DotRow> dots;         // best first
  std::vector<DotRow> squares;      // of two rows by two (square_meaning)
  std::vector<TileRow> tiles;       // empty: no matrix unit
  std::vector<MatrixRow> matrices;  // of GPUs
  std::vector<FloatCode> codes;     // 8 bit floats that matrix instructions take
  // Rows f32 -> f32 with an error of a few ulp, which flush subnormals to zero: 2^x, 1 / x.
  std::string power2, reciprocal;
  // Kernels wait for the end of the previous kernel themselves, so their launch overlaps it.
  bool follows = false;
  bool async_copies = false;   // loop op `copy` is an instruction; else it is a load and a store
  int64_t together_bytes = 0;  // per lane, for which `copy_together` is an instruction; else it is a load and a store
  // Chiplets of a GPU with a second-level cache each; consecutive blocks go to consecutive chiplets.
  int chiplets = 1;
  int tile_registers = 8;
  double tile_cycles = 16;  // issue cost of one matrix row
  CostTable costs = {};
  std::vector<MatrixLoad> loads;  // of factors of `matrices`

  int f32_lanes() const { return vector_bits / 32; }
  int64_t grain(int64_t elements) const { return std::max<int64_t>(elements / task_divisor, 1); }  // of a task
  int64_t enough(int64_t tasks) const { return std::max(tasks, busy_tasks); }  // tasks that keep it busy
  const MatrixLoad* find_load(bool transposed) const;                          // null: each lane loads its own elements
  const Row* find_row(std::string_view name) const;
  const loop::Function* meaning(std::string_view row) const;  // parsed once, null when unknown
};
using MachineRef = std::shared_ptr<const Machine>;

std::vector<MachineRef> all_machines();
MachineRef find_machine(std::string_view name);  // Error with the known names as hint; "native" detects the processor
MachineRef native_machine();
bool runs_here(const Machine& m);  // this processor can execute its code

// Meanings of the recurring families, as loop IR text.
std::string float_dot_meaning(const std::string& name, int lanes);  // bf16 pairs, f32
std::string tile_meaning(const TileRow& t);
// f32[n] above, f32[n] below -> bf16[2n], below first; numbers that are not normal become zero of their sign.
std::string round_pair_meaning(const std::string& name, int lanes);
std::string matrix_meaning(const MatrixRow& r);  // of one element
std::string dot_meaning(const std::string& name, const DotRow& d);
// A 2x2 product in every 128 bits: sums[2 i + j] += sum_{k' < k} a[i][k'] * b[j][k'], i, j < 2. Over a whole vector,
// each of the lanes / 2 rows of a is multiplied by the two rows in the same 128 bits of b. Pairs of bf16 are added as
// BFDOT does.
std::string square_meaning(const DotRow& d);
std::string product_pairs_meaning(const std::string& name, int lanes);               // i16[2n], i16[2n] -> i32[n]
std::string saturating_pairs_meaning(const std::string& name, int lanes);            // u8[2n], i8[2n] -> i16[n]
std::string widening_product_meaning(const std::string& name, int lanes);            // i8[n], i8[n] -> i16[n]
std::string sum_pairs_meaning(const std::string& name, int lanes);                   // i16[2n] -> i32[n]
std::string lookup_meaning(const std::string& name, int lanes, bool high_bit_only);  // u8 table, u8 index -> u8
std::string whole_lookup_meaning(const std::string& name, int lanes);  // the table is all lanes of operand 0
// Looks up a register of words (or bytes) in a table of one or two registers: table, index, the table's upper half.
std::string word_lookup_meaning(const std::string& name, int lanes, Scalar word = Scalar::u32,
                                bool two_registers = false);
std::string permute_meaning(const std::string& name);           // u32, u32 bytes, u32 nibbles -> u32
std::string byte_permute_meaning(const std::string& name);      // the same, selected by u32 bytes
std::string bits8_meaning(const std::string& name, int lanes);  // u8 bit, u8 bytes -> u8

// A GPU described as very many small CPUs, for kernels that have no plan for thread blocks.
Machine threads(const std::string& name, const std::string& triple, int wave, int64_t shared_bytes, int units);

// 8-bit floats with hardware support: OCP's, and those without -0 and infinities.
constexpr FloatCode kOcp4{4, 3, 7, FloatCode::Special::all_ones}, kOcp5{5, 2, 15, FloatCode::Special::ieee};
constexpr FloatCode kNoMinus4{4, 3, 8, FloatCode::Special::negative_zero},
    kNoMinus5{5, 2, 16, FloatCode::Special::negative_zero};
constexpr FloatCode kTwoBits{2, 1, 1, FloatCode::Special::none};  // 4 bits in all

// Columns of an MN-major panel, in runs of 64 rows.
constexpr int64_t kTransposedColumns = 64;

// How a lane holds its fragment of operand i of a matrix row: acc, a, b, scales.
loop::VType operand_type(const MatrixRow& r, size_t i);

std::string code_name(const FloatCode& c);  // "e4m3", "e4m3u" without -0
std::string factor_name(const Factor& f);   // the same, or the scalar's
// "mma.16x8x16.f16f16.f32"
std::string matrix_name(const MatrixRow& r);

// Adds instructions that convert two codes of an 8-bit float to f16 or f32, for the lane counts that kernels use.
void add_conversion(Machine& m, const FloatCode& c, Scalar to, const std::string& llvm, const std::string& arguments);
std::string conversion_name(const FloatCode& c, Scalar to, int lanes);  // "convert.e4m3.f16x4"

// Adds instructions that round two f32 to codes of an 8-bit float: to nearest even, saturating (infinities too); NaN is
// all ones.
void add_rounding(Machine& m, const FloatCode& c, const std::string& llvm, const std::string& arguments);
std::string rounding_name(const FloatCode& c, int lanes);  // "round.f32.e4m3x4"

// A dot of four bytes by four of i8.
DotRow dot4(Scalar a, int lanes);
// Adds the best dot yet.
void add_dot(Machine& m, const DotRow& d, const std::string& llvm, const std::string& needs, double cycles,
             const std::string& arguments = {});
// Adds a dot of four bytes for four lanes of acc, made of the machine's instruction for one lane.
void add_dot4(Machine& m, Scalar a, const std::string& llvm, const std::string& arguments);

// Adds the instructions of Machine::power2 and reciprocal.
void add_shortcuts(Machine& m, const std::string& power2, const std::string& reciprocal);

// A collective of `lanes` lanes that hold its fragments in registers.
std::shared_ptr<const loop::Collective> collective(int lanes, loop::Fragment acc, loop::Fragment a, loop::Fragment b);

// Adds a load of parts of factors of 16 bits (or of pairs of bytes); `fragment` has a row for each lane.
void add_matrix_load(Machine& m, std::string row, bool transposed, loop::Fragment fragment, std::string llvm);

// Adds a matrix row with its name and meaning; `llvm` and `arguments` as in Row.
void add_matrix(Machine& m, MatrixRow row, std::string llvm, double cycles, std::string arguments = {});

// The families, each in a file of its own.
std::vector<Machine> x86_machines();
std::vector<Machine> arm_machines();
std::vector<Machine> nvidia_machines();
std::vector<Machine> amd_machines();

}  // namespace lumen::machine
