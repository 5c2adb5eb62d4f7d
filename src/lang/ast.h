// The syntax tree of Lumen's language: formats, functions, tables and models share one expression and one statement
// type. The tree is plain data; number/format_reader (formats) and graph/elaborate (functions, models) define its
// semantics. Must not depend on: tensors, kernels, files. Proved by tests/lang.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/place.h"

namespace lumen::lang {

struct Expr;
using ExprPtr = std::shared_ptr<const Expr>;

enum class ExprKind {
  number,  // 3, 0x7f, 1.5e-3          value in `number`, `is_integer`
  string,  // "text"                   `text`
  name,    // x                        `text`
  unary,   // - not ~                  `text` is the operator, args[0]
  binary,  // + - * / % ** == < and |  `text` is the operator, args[0], args[1]
  call,    // f(a, b, eps = 1)         `text` is the callee; args; `names[i]` is "" or the keyword of args[i]
  index,   // x[a, b]                  args[0] is x, the rest are subscripts (may be slices); `outside`
  member,  // cfg.hidden               args[0], `text` is the member
  list,    // [a, b, c]                args
  slice,   // a:b inside subscripts    args[0], args[1], either may be null (open end); ':' alone has both null
  reduce,  // sum(j in 0..32) e        `text` is sum|max|min|argmax|argmin|mean|any|all; `vars`; args[0] is the body;
           // sum(k) e                 ranges[i] = {lo, hi} or {null, null} when the range follows from use
  choose,  // if c then a else b       args[0..2]
  range,   // a..b  (half-open)        args[0], args[1]
};

struct Expr {
  ExprKind kind;
  Place place;
  std::string text;
  double number = 0;
  int64_t integer = 0;
  bool is_integer = false;
  std::vector<ExprPtr> args;
  std::vector<std::string> names;                   // call keywords
  std::vector<std::string> vars;                    // reduce variables
  std::vector<std::pair<ExprPtr, ExprPtr>> ranges;  // reduce ranges, same length as vars
  ExprPtr outside;  // index: x[i + 1; 0], the value outside of x; null: reads out of range are not allowed
  int height = 1;   // longest path to a leaf; bounded by the parser, so tree visitors may recurse
};

enum class StmtKind {
  let,     // let x = e                 also let (a, b) = f(...)   (`names`)
  var,     // var x = e | var a[32] = e   (`extent` set for arrays)
  assign,  // target = e                 target is name, index; also (a, b) = e with several targets
  define,  // y[m, n] = sum(k) ...       index notation over names not bound before (functions only)
  loop,    // for i in a..b [step s] { }
  branch,  // if c { } else { }
  result,  // return e  | a bare trailing expression  (several values: `values`)
};

struct Stmt {
  StmtKind kind;
  Place place;
  std::vector<std::string> names;  // let/var/loop names
  std::vector<ExprPtr> targets;    // assign/define targets
  ExprPtr value;                   // let, var, assign, branch condition
  std::vector<ExprPtr> values;     // result
  ExprPtr extent;                  // var a[extent]
  ExprPtr from, to, step;          // loop; `for l in layers` has the name `layers` as `from` and no `to`
  std::vector<Stmt> body;          // loop, branch
  std::vector<Stmt> otherwise;     // branch
};

// Types: f32[..., D], u4[32], state f32[S, 8], i32[]; in formats also float<4, 3, 7, fn>.
struct TypeExpr {
  Place place;
  std::string name;             // scalar type or format
  std::vector<ExprPtr> params;  // <...>
  std::vector<ExprPtr> dims;    // [...]; an `index` without a dim list
  bool has_dims = false;        // distinguishes `f32` from `f32[]`
  bool leading_any = false;     // starts with ...
  std::string leading_name;     // the name in `...Name`; "" for a bare ...
  bool is_state = false;        // `state f32[S]`: a value kept between runs
};

struct Param {
  Place place;
  std::string name;
  std::optional<TypeExpr> type;
  ExprPtr default_value;
};

// fn rms_norm(x: f32[..., D], w: f32[D]) -> f32[..., D] = e      or   { statements }
struct Function {
  Place place;
  std::string name;
  std::vector<Param> params;
  std::vector<TypeExpr> results;
  std::vector<Stmt> body;  // `= e` becomes one result statement
};

// table steps : f32 = [ ... ]      named constant data, usable in formats and functions
struct Table {
  Place place;
  std::string name;
  TypeExpr type;
  std::vector<ExprPtr> values;
};

// One piece of a field's layout: its elements, its bits of the value, and their position.
//   [0..3] bits 4..5 byte 12 bit 6 (2:4, 4:8)
struct LayoutPiece {
  Place place;
  std::string shorthand;                           // "halves", or "" for an explicit piece
  ExprPtr index_from, index_to;                    // [a..b], inclusive; null = all elements
  ExprPtr bits_from, bits_to;                      // inclusive; null = all bits of the value
  ExprPtr byte, bit;                               // base position in the block; null = the field's default position
  std::vector<std::pair<ExprPtr, ExprPtr>> modes;  // (extent : stride in bits), slowest first; empty = dense
};

struct FieldDecl {
  Place place;
  std::string level;  // "", element, block, row, tile, tensor
  std::string name;
  TypeExpr type;
  std::vector<LayoutPiece> layout;
};

struct Attribute {  // block 32 | gguf 2 | tile 128 128 | extends x | doc "text"
  Place place;
  std::string name;
  std::vector<ExprPtr> values;
};

struct FormatDecl {
  Place place;
  std::string name;
  std::vector<Param> params;  // format int(bits, group) ... instantiated as int(4, 32)
  std::vector<Attribute> attributes;
  std::vector<FieldDecl> fields;
  std::vector<Function> routines;  // decode(i) = ..., fit(x) { }, code(v) = ..., fit row(x) is named "fit row"
};

// A format defined from another: format NAME : doc "..." = OTHER(4, 32)
struct FormatAlias {
  Place place;
  std::string name;
  ExprPtr value;  // a call expression
  std::vector<Attribute> attributes;
};

struct ModelParam {
  Place place;
  std::string name;
  TypeExpr type;
  std::vector<Attribute> attributes;  // gguf "blk.{i}.attn_q.weight", hf "...", role attention_q, init normal 0.02
};

struct ConfigKey {  // hidden : i32 = 128, gguf "{a}.embedding_length", hf "hidden_size"
  Place place;
  std::string name;
  TypeExpr type;
  ExprPtr default_value;
  std::vector<Attribute> attributes;
};

struct SizeDecl {  // size small-1b { layers = 22, hidden = 2048 }
  Place place;
  std::string name;
  std::vector<std::pair<std::string, ExprPtr>> values;
};

struct ModelDecl {
  Place place;
  std::string name;
  std::vector<Attribute> attributes;
  std::vector<ConfigKey> config;
  std::vector<SizeDecl> sizes;
  std::vector<ModelParam> params;        // once per model
  ExprPtr layer_count;                   // layers cfg.layers { ... }
  std::vector<ModelParam> layer_params;  // once per layer
  std::vector<Function> functions;
};

struct File {
  SourceRef source;
  std::vector<Table> tables;
  std::vector<Function> functions;
  std::vector<FormatDecl> formats;
  std::vector<FormatAlias> aliases;
  std::vector<ModelDecl> models;
};

}  // namespace lumen::lang
