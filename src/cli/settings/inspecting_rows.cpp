// Options of commands that show or check something: texts as tokens, data, runs, files, formats, this machine; of demo
// and of the manual.
#include "cli/settings/rows.h"

namespace lumen::cli {
namespace {

constexpr const char* kData = "data preview,data stats";

constexpr Setting kRows[] = {
    Setting{"path", "verify", "Folder of a run or of an adapter, GGUF or safetensors file"}
        .reading(Reads::run, "RUN|FILE")
        .required(),
    Setting{"--format,--type", "bench kernels", "Formats; by default all"}.takes("NAME,...").list(),
    Setting{"--shape", "bench kernels", "Rows x columns of the weights"}
        .takes("NxK,...")
        .list()
        .with_default()
        .as_variable("LUMEN_KERNELS_SHAPE"),
    Setting{"-M,--rows", "bench kernels", "Rows of activations"}.list().from(1, 1 << 16).with_default(),
    Setting{"--json", "list,ps,doctor,cache,cache clear", "Print JSON, for other programs"}.no_variable(),
    Setting{"kind", "cache clear", "kernels, plans, tokens or another kind that `lumen cache` lists"}.takes("KIND"),
    Setting{"file", "compile", "A .lum file with a model or functions, or a known family"}
        .reading(Reads::file, "FILE")
        .required(),
    Setting{"--shape,--size", "compile", "Named size of the model; without it, the first one"},
    Setting{"--config", "compile", "Value of the model's configuration; repeatable"}.takes("KEY=NUMBER"),
    Setting{"--function", "compile", "Function; 'train' is a whole training step"}.with_default(),
    Setting{"--symbols", "compile", "Values of shape symbols; by default B and R are 1, others 32"}
        .takes("B=1,T=512")
        .list(),
    Setting{"--format", "compile", "Format of weights; repeatable"}.takes("[PATTERN=]FORMAT"),
    Setting{"--activations", "compile", "Format of the activations that matrices read"}.takes("FORMAT"),
    Setting{"--target", "compile", "Machine; see `lumen doctor`"}.takes("MACHINE").with_default(),
    Setting{"--emit", "compile",
            "Stage to print: graph, loops, llvm, asm, obj, or bids (which kernels were considered for products)"}
        .with_default(),
    Setting{"-o,--out", "compile", "File to write instead of printing"}.writing(Writes::file, "OUT"),
    Setting{"--explain", "compile",
            "Run it here, on random numbers: print each kernel's plan, its predicted and measured time, and the "
            "hardware limit of that time"},
    Setting{"--check", "compile",
            "For a GPU: print each kernel's registers, spills, memory, and what its inner loop is made of; --emit and "
            "--out also write a stage"},
    Setting{"--check-family", "compile",
            "Compute what a recording of another program holds (tools/record_model.py), and print which part of the "
            "model differs first"},
    Setting{"--against", "compile", "Folder of the recording"}.reading(Reads::folder, "FOLDER").no_variable(),
    Setting{"--precision", "compile",
            "Float type of the operands of products and attention, or a recipe that sets each operand's format"}
        .takes("TYPE")
        .with_default(),
    Setting{"--all", "doctor", "Test the kernels of every format"},
    Setting{"--quick", "doctor", "Skip the self-test and the measurement"},
    Setting{"--report", "doctor", "Write a report of devices and tests to a file, to send to others"}.writing(
        Writes::file),
    Setting{"name", "format show", "Format"}.required(),
    Setting{"file", "format check", "A .lum file, or the name of a known format"}
        .reading(Reads::file, "FILE|NAME")
        .required(),
    Setting{"path,-m,--model", "inspect", "File or folder"}.reading(Reads::model, "FILE").required(),
    Setting{"--limit", "inspect", "Most elements to print of an array"}.with_default(),
    Setting{"--tensors", "inspect", "Leave out the metadata"},
    Setting{"-m,--model,--tokenizer", "tokenize",
            "GGUF file, tokenizer.json, SentencePiece .model, or a folder with one"}
        .reading(Reads::model, "FILE"),
    Setting{"text", "tokenize", "Text; without it and --file, standard input is read"},
    Setting{"-f,--file", "tokenize", "File with the text"}.reading(Reads::file, "FILE"),
    Setting{"--ids", "tokenize", "Print ids only, on one line"},
    Setting{"--json", "tokenize", "Print JSON"},
    Setting{"--stats", "tokenize", "Measure tokens per character, word and byte, separately for Korean and English"},
    Setting{"--decode", "tokenize", "Print the text of these ids"}.takes("ID...").from(0, INT32_MAX - 1).no_variable(),
    Setting{"--special", "tokenize", "Add BOS and EOS as the tokenizer defines"},
    Setting{"--plain", "tokenize", "Do not parse control tokens in the text"},
    Setting{
        "--json-lines", "tokenize",
        "For programs: each line of standard input is a JSON text or {\"bytes\": hex}, each line of output its tokens"}
        .no_variable(),
    Setting{"--train", "tokenize", "Train a tokenizer (byte pairs) on these files"}
        .under("Training")
        .reading(Reads::file, "FILE...")
        .no_variable(),
    Setting{"--vocabulary", "tokenize", "Vocabulary size of the trained tokenizer"}.under("Training").with_default(),
    Setting{"--special-token", "tokenize", "Control token of the trained tokenizer; the first one is EOS"}.under(
        "Training"),
    Setting{"--split", "tokenize", "Pretokenizer of the trained tokenizer: a name in models/pretokenizers.toml"}.under(
        "Training"),
    Setting{"-o,--output", "tokenize", "Path of the trained tokenizer.json"}.writing(Writes::file, "FILE"),
    Setting{"shell", "shell-completion", "Shell"}.required().takes("SHELL").one_of("bash zsh fish"),
    Setting{"command", "manual", "Command; by default the whole program"}.takes("NAME"),
    Setting{"--form", "manual", "man; markdown, including subcommands; or json: the table of options of these commands"}
        .takes("FORM")
        .one_of("man markdown json")
        .with_default(),
    Setting{"-m,--model,--tokenizer,--model_name_or_path", kData,
            "Model whose tokenizer and chat template to use, or a tokenizer.json"}
        .reading(Reads::model, "FILE")
        .required(),
    Setting{"data,--data,--dataset", kData, "Files or folders"}.reading(Reads::data, "FILE").required(),
    Setting{"-n,--examples", "data preview", "Number of examples to print"}.from(0, INT32_MAX).with_default(),
    Setting{"--tokens", "data preview", "Print one token on each line"},
    Setting{"--json", "data preview", "Print only the examples, each as a line of JSON"},
    Setting{"--form,--data-form,--data_form", kData, "Kind of rows: auto, texts, chats, pairs or labels"},
    Setting{"--columns", kData, "Names of the columns: prompt=Q,completion=A"}.takes("NAME=COLUMN").list(),
    Setting{"--chat-template,--chat_template", kData, "Chat template, by name or from a file"}.reading(Reads::file,
                                                                                                       "NAME|FILE"),
    Setting{"--train-on,--train_on", kData, "Tokens of chats that are learned: assistant, last (answer) or all"},
    Setting{"-c,--length,--max_seq_length,--max-seq-length", kData, "Count examples that are longer than a window"}
        .from(1, INT32_MAX),
    Setting{"--strict", kData, "Stop with an error at a row that cannot be used"},
    Setting{"-o,--out,--output,--output-dir", "demo", "Folder for the GGUF files"}
        .writing(Writes::folder, "DIR")
        .with_default(),
    Setting{"-r,--recipe", "demo", "Recipe with a [demo] section"}.reading(Reads::file).with_default(),
    Setting{"--steps", "demo", "Training steps"}.from(1),
    Setting{"--tuning-steps", "demo", "Training steps of each fine-tuning run"}.from(1),
    Setting{"--sample", "demo", "Characters of the sample at the end"}.from(0).with_default(),
    Setting{"runs", "report", "Folders that `lumen train` wrote, or one JSON report of a compression or study"}
        .reading(Reads::run, "RUN..")
        .required(),
    Setting{"-o,--output", "report",
            "The page; report.html in the run's folder, or here when there are several runs; of a document the page "
            "next to it"}
        .writing(Writes::file, "FILE"),
    Setting{"--text", "report", "Print a table on the terminal instead"},
};

}  // namespace

std::span<const Setting> inspecting_rows() {
  return kRows;
}

}  // namespace lumen::cli
