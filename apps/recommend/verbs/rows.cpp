// Options of `lumen recommend`.
#include "apps/recommend/channels.h"
#include "apps/recommend/verbs/verbs.h"
#include "cli/settings/settings.h"

namespace lumen::cli {
namespace {

constexpr Setting kRows[] = {
    Setting{"run", "recommend plan,recommend apply,recommend serve,recommend eval", "Folder of a run"}
        .reading(Reads::run, "RUN")
        .required(),
    Setting{"--items", "recommend plan", "What the user did, the oldest first; without it the usual plan"}.takes(
        "A,B,.."),
    Setting{"--cloud", "recommend plan", "Where `lumen recommend serve` listens"}.takes("HOST:PORT"),
    Setting{"--patience", "recommend plan", "Seconds to wait for a cloud"}.from(0.01, 3600).with_default(),
    Setting{"-o,--out", "recommend plan,recommend sample", "File to write"}.writing(Writes::file, "FILE").required(),
    Setting{"--plan", "recommend apply", "A plan's file"}.reading(Reads::file, "FILE").required(),
    Setting{"--items", "recommend apply", "What the user did, the oldest first"}.required().takes("A,B,.."),
    Setting{"--table", "recommend apply,recommend eval", "Bits of the classes: tight, normal, roomy, or four numbers"}
        .with_default(),
    Setting{"--top", "recommend apply", "Recommendations"}.from(1, 1'000'000).with_default(),
    Setting{"--listen", "recommend serve", "Where; port 0 takes one that is free. Clients are not authenticated"}
        .takes("HOST:PORT")
        .with_default(),
    Setting{"--connections", "recommend serve", "At once"}.from(1, 10'000).with_default(),
    Setting{"--rate", "recommend serve", "Asks a second of one connection"}.from(0.1, 1e6).with_default(),
    Setting{"--idle", "recommend serve", "Seconds a connection may take between asks"}.from(0.05, 3600).with_default(),
    Setting{"--asks", "recommend serve", "End after this number of plans; 0: never"}.from(0, 1'000'000'000),
    Setting{"-o,--out", "recommend study", "Folder of the page"}.writing(Writes::folder, "DIR").required(),
    Setting{"--family", "recommend study", "Recommender without plans"}.required().takes("NAME"),
    Setting{"--planned", "recommend study", "The same with plans"}.required().takes("NAME"),
    Setting{"--config", "recommend study", "A config value of both; repeatable"}.takes("KEY=NUMBER"),
    Setting{"--objective", "recommend study", "pairs or candidates"}.one_of("pairs candidates").with_default(),
    Setting{"--candidates", "recommend study,recommend train", "Items drawn for each batch; 0: all"}
        .under("Training")
        .from(0, 1 << 30),
    Setting{"--epochs", "recommend study,recommend train", "Passes over the data"}.from(1, 1'000'000).with_default(),
    Setting{"--planned-epochs", "recommend study",
            "The same where plans are trained, which see about half of an epoch's targets; 0: as many"}
        .from(0, 1'000'000),
    Setting{"--eval-every", "recommend study", "Epochs between evaluations on validation data"}
        .under("Evaluation")
        .from(1, 1'000'000)
        .with_default(),
    Setting{"--seeds", "recommend study", "Runs of each"}.from(1, 100).with_default(),
    Setting{"--seed", "recommend study", "The first of them"}.from(1, 1'000'000'000).with_default(),
    Setting{"--only", "recommend study",
            "Parts: trained (a, b, i), aware (c), frozen (d), frozen-bits (e), planned (f, g, h); without it all"}
        .list()
        .one_of("trained aware frozen frozen-bits planned"),
    Setting{"--batch", "recommend study", "Users of a step"}.under("Training").from(1, 1 << 16).with_default(),
    Setting{"--lr,--rate", "recommend study,recommend train", "Learning rate"}
        .under("Training")
        .from(1e-9, 1)
        .with_default(),
    Setting{"--tau-steps", "recommend study,recommend train", "Steps until classes are chosen most sharply"}
        .under("Training")
        .from(1, 1'000'000'000)
        .with_default(),
    Setting{"--users", "recommend study", "Number of users to draw for the test; 0: all"}
        .under("Evaluation")
        .from(0, 1'000'000'000),
    Setting{"--tuned-users", "recommend study", "Users whose devices are fine-tuned"}
        .under("Evaluation")
        .from(0, 100'000)
        .with_default(),
    Setting{"--tune-steps", "recommend study", "So many"}.under("Evaluation").from(1, 10'000).with_default(),
    Setting{"-o,--out", "recommend train", "Folder of the run"}.writing(Writes::folder, "RUN").required(),
    Setting{"--family", "recommend train", "Family of models/*.lum that is a recommender"}.takes("NAME"),
    Setting{"--config", "recommend train", "A config value; repeatable"}.takes("KEY=NUMBER"),
    Setting{"--objective", "recommend train", "pairs: a target and a drawn item; candidates: softmax over items"}
        .one_of("pairs candidates")
        .with_default(),
    Setting{"--batch", "recommend train", "Users or windows of a step"}
        .under("Training")
        .from(1, 1 << 16)
        .with_default(),
    Setting{"--seed", "recommend train", "Seed of weights and of all other random numbers"}
        .from(0, 0xffffffff)
        .with_default(),
    Setting{"--freeze", "recommend train", "Matrices stay as random as they were drawn"}.under("Training"),
    Setting{"--freeze-bits", "recommend train", "With --freeze: number of bits"}
        .under("Training")
        .from(0, recommend::kMostBits),
    Setting{"--tables", "recommend train", "Tables of bits of which one is drawn for each batch"}
        .under("Training")
        .list(';'),
    Setting{"--eval-every", "recommend train", "Epochs between evaluations and checkpoints"}
        .under("Evaluation")
        .from(1, 1'000'000)
        .with_default(),
    Setting{"--eval-users", "recommend train", "Users of an evaluation, drawn; 0: all"}
        .under("Evaluation")
        .from(0, 1'000'000'000)
        .with_default(),
    Setting{"--patience", "recommend train", "End after this number of evaluations without improvement; 0: never"}
        .under("Evaluation")
        .from(0, 1'000'000),
    Setting{"--resume", "recommend train",
            "Continue from the newest checkpoint, with the same bits as an uninterrupted run"}
        .no_variable(),
    Setting{"data", "recommend train,recommend eval,recommend study",
            "Interactions: lines of user, item and perhaps rating and time; may be packed by gzip"}
        .reading(Reads::file, "DATA")
        .required(),
    Setting{"--core", "recommend train,recommend eval,recommend study",
            "Remove users and items with fewer interactions, repeatedly"}
        .takes("N")
        .from(0, 1000),
    Setting{"--users", "recommend sample", "Users"}.from(1, 10'000'000).with_default(),
    Setting{"--items", "recommend sample", "Items"}.from(4, 10'000'000).with_default(),
    Setting{"--circle", "recommend sample", "Items that follow each other in a circle"}
        .from(2, 1'000'000)
        .with_default(),
    Setting{"--seed", "recommend sample", "What they follow from"}.from(0, 0xffffffff).with_default(),
    Setting{"--bits", "recommend eval", "Without plans: bits of the matrices, the same for all channels"}.from(
        1, recommend::kMostBits),
    Setting{"--users", "recommend eval", "So many users, drawn; 0: all"}.from(0, 1'000'000'000),
    Setting{"--seed", "recommend eval", "Of what is drawn"}.from(0, 0xffffffff).with_default(),
    Setting{"--validation", "recommend eval", "Rank the validation items, the last but one of each user"},
};

}  // namespace

std::span<const Setting> recommend_rows() {
  return kRows;
}

}  // namespace lumen::cli
