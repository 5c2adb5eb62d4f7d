// needs: none. Families against recordings of tools/record_model.py, with the text as it is and with one fault in it.
// The recordings: fixtures/recorded.
#include "model/infer/recorded/recorded.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file/file.h"
#include "base/structured/json.h"
#include "model/arch/checkpoint/read.h"
#include "tests/model/families/family_case.h"

namespace lumen::model::infer {
namespace {

namespace fs = std::filesystem;

const fs::path kRecorded = kFixtures / "recorded";

// The library with a change of a family's text.
arch::LibraryRef library_with(const std::string& family, const std::string& from, const std::string& to) {
  auto library = arch::Library::builtin();
  std::string text = read_file(fs::path(LUMEN_SOURCE_DIR) / "models" / (family + ".lum"), 1 << 20);
  if (!from.empty()) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  library->replace_model_text(std::make_shared<Source>(Source{family + ".lum", text}));
  return library;
}

FamilyCheck checked(const arch::LibraryRef& library, const Recording& recording) {
  return check_family(engine(), arch::read_model(library, recording.model), recording);
}

struct Fault {
  std::string recording, family, from, to, stage, cause;
};

const Fault kFaults[] = {
    {"qwen3", "qwen3", "", "", "", ""},
    {"llama_tied_bias", "llama", "", "", "", ""},
    {"gemma3", "gemma3", "", "", "", ""},
    {"encoder", "bert", "", "", "", ""},
    // Keys are normed with the queries' weights.
    {"qwen3", "normed_heads", "cfg.kv_heads, cfg.head_dim]), l.k_norm)", "cfg.kv_heads, cfg.head_dim]), l.q_norm)",
     "model.layers.0", "model.layers.0.self_attn.o_proj"},
    // A wrong addend of the norms.
    {"llama_tied_bias", "llama", "fn normed(x, w) = rms_norm(x, w, cfg.eps)", "fn normed(x, w) = rms_norm(x, w, 0.01)",
     "model.layers.0", "model.layers.0.input_layernorm"},
    // The addend of another family, a tenth of the right one.
    {"llama_tied_bias", "llama", "fn normed(x, w) = rms_norm(x, w, cfg.eps)",
     "fn normed(x, w) = rms_norm(x, w, cfg.eps * 0.1)", "model.layers.0", "model.layers.0.input_layernorm"},
    // Another base of the rotation.
    {"llama_tied_bias", "llama", "let plain = each(i, n / 2, rope_frequency(i, n, cfg.theta))",
     "let plain = each(i, n / 2, rope_frequency(i, n, cfg.theta * 2.0))", "model.layers.0",
     "model.layers.0.self_attn.o_proj"},
    // Pairs that are not adjacent: every product before the attention is right.
    {"llama_tied_bias", "llama", "fn turned(x, at, frequencies) = rope(x,",
     "fn turned(x, at, frequencies) = rope_halves(x,", "model.layers.0", "model.layers.0.self_attn.o_proj"},
    // Without a bias.
    {"llama_tied_bias", "llama", "(linear(h, l.up) + l.bup), l.down) + l.bdown", "(linear(h, l.up) + l.bup), l.down)",
     "model.layers.0", "model.layers.0"},
    // The embedding is not scaled.
    {"gemma3", "gemma2", "fn embedded(tokens) = sqrt(1.0 * cfg.hidden) * embed[tokens]",
     "fn embedded(tokens) = embed[tokens]", "embedding", "embedding"},
    // The last layer alone has no window.
    {"gemma3", "gemma3", "if cfg.kinds[l.index] == \"sliding_attention\" {", "if l.index != 1 {", "model.layers.1",
     "model.layers.1.self_attn.o_proj"},
    // The norm after all layers.
    {"qwen3", "llama", "fn logits_of(x) = linear(normed(x, norm),", "fn logits_of(x) = linear(rms_norm(x, norm, 0.1),",
     "result", "model.norm"},
    // A norm of an encoder's second half of a layer.
    {"encoder", "bert", "l.down) + l.bdown, l.ffn_norm, l.bffn_norm, cfg.eps)",
     "l.down) + l.bdown, l.attn_norm, l.bffn_norm, cfg.eps)", "encoder.layer.0", "encoder.layer.0"},
};

class Recorded : public testing::TestWithParam<Fault> {};

TEST_P(Recorded, NamesWhatDiffersFirst) {
  const Fault& fault = GetParam();
  const Recording recording = read_recording(kRecorded / fault.recording, test_library()->formats());
  const FamilyCheck check = checked(library_with(fault.family, fault.from, fault.to), recording);
  const std::string table = print(check);
  ASSERT_GE(std::ssize(check.outputs), recording.layers + 2) << table;
  if (fault.stage.empty()) {
    EXPECT_EQ(check.stage, -1) << table;
    EXPECT_NE(table.find("agree within"), std::string::npos) << table;
    // Most modules have a counterpart: each layer has at least six products.
    EXPECT_GT(std::ssize(check.outputs), 6 * recording.layers) << table;
    for (const ComparedOutput& o : check.outputs) EXPECT_LT(o.error, kRecordedBound) << o.theirs;
    return;
  }
  ASSERT_GE(check.stage, 0) << table;
  EXPECT_EQ(check.outputs[check.stage].theirs, fault.stage) << table;
  EXPECT_EQ(check.outputs[check.cause].theirs, fault.cause) << table;
  EXPECT_NE(table.find("the first difference is in '" + fault.cause + "'"), std::string::npos) << table;
}

INSTANTIATE_TEST_SUITE_P(All, Recorded, testing::ValuesIn(kFaults),
                         [](const auto& i) { return i.param.recording + std::to_string(i.index); });

std::string message_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Recordings, WrongInputIsNamed) {
  const TestFolder folder;
  const auto& formats = test_library()->formats();
  const auto reading = [&] { return message_of([&] { (void)read_recording(folder.path(), formats); }); };
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(reading(), "there is no recording here");
  fs::copy(kRecorded / "qwen3", folder.path(), fs::copy_options::recursive);
  const nlohmann::json right = parse_json(read_file(folder / "recording.json", 1 << 20), "");
  const auto changed = [&](const std::function<void(nlohmann::json&)>& change) {
    nlohmann::json about = right;
    change(about);
    write_file_atomic(folder / "recording.json", about.dump());
    return reading();
  };
  has(changed([](auto& a) { a["lumen_recording"] = 7; }), "version 7");
  has(changed([](auto& a) { a.erase("layers"); }), "layers");
  has(changed([](auto& a) { a["modules"] = 3; }), "not a list of modules");
  has(changed([](auto& a) { a["modules"][0]["name"] = "absent"; }), "'absent' is missing");
  has(changed([](auto& a) { a["modules"][1] = a["modules"][0]; }), "there twice");
  has(changed([](auto& a) { a["modules"][0]["layer"] = 9; }), "layer number 9");
  write_file_atomic(folder / "recording.json", "[1]");
  has(reading(), "not a JSON object");
  write_file_atomic(folder / "recording.json", right.dump());
  write_file_atomic(folder / "recording.safetensors", "nothing");
  EXPECT_NE(reading(), "no error");

  Recording recording = read_recording(kRecorded / "qwen3", formats);
  recording.layers = 1;
  has(message_of([&] { (void)checked(test_library(), recording); }), "has 1 layers");
  recording = read_recording(kRecorded / "encoder", formats);
  recording.has_logits = true;
  has(message_of([&] { (void)checked(test_library(), recording); }), "no function 'forward'");
}

}  // namespace
}  // namespace lumen::model::infer
