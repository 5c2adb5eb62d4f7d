// Options of `lumen federate`.
#include "apps/federate/verbs/verbs.h"
#include "cli/settings/settings.h"

namespace lumen::cli {
namespace {

constexpr const char* kRuns = "federate serve,federate simulate,federate study";
constexpr const char* kSimulations = "federate simulate,federate study";

constexpr Setting kRows[] = {
    Setting{"data", "federate join,federate partition", "Folder of IDX files (train-..), or with text.txt"}
        .reading(Reads::folder, "FOLDER")
        .required(),
    Setting{"--server", "federate join", "Where `lumen federate serve` listens"}.required().takes("HOST:PORT"),
    Setting{"--name", "federate join", "Of this client; without it the folder's"}.takes("NAME"),
    Setting{"--state", "federate join",
            "Folder of the client's state, for when it joins again; DATA/federate without it"}
        .writing(Writes::folder, "FOLDER"),
    Setting{"--patience", "federate join", "Seconds to wait for an answer"}
        .under("Connections")
        .from(0.1, 3600)
        .with_default(),
    Setting{"--give-up", "federate join", "Seconds to try again while the server is away"}
        .under("Connections")
        .from(0, 1e7)
        .with_default(),
    Setting{"--measure", "federate join", "Seconds to measure each way to train for"}
        .under("Measurements")
        .from(0.01, 600)
        .with_default(),
    Setting{"--memory", "federate join", "Bytes that training may take; 0: as many as there are"}
        .under("Measurements")
        .from(0, 1e15),
    Setting{"--hide-labels", "federate join", "Do not send counts of classes to the server"},
    Setting{"-o,--out", "federate serve", "Folder of the run"}.writing(Writes::folder, "RUN").required(),
    Setting{"--clients", "federate serve", "Number of clients that must join before the run begins"}
        .from(1, 100'000)
        .with_default(),
    Setting{"--deadline", "federate serve", "Seconds after which a round ends without those who have not answered"}
        .from(0.01, 1e6)
        .with_default(),
    Setting{"--secure", "federate serve",
            "See only sums of updates: clients mask them for each other, and send 4 bytes per number"},
    Setting{"--listen", "federate serve", "Where; port 0 takes one that is free. Clients are not authenticated"}
        .takes("HOST:PORT")
        .with_default(),
    Setting{"--connections", "federate serve", "At once"}.under("Connections").from(1, 10'000).with_default(),
    Setting{"--asks", "federate serve", "Messages per second of one connection"}
        .under("Connections")
        .from(0.1, 1e6)
        .with_default(),
    Setting{"--idle", "federate serve", "Seconds a connection may take for a message"}
        .under("Connections")
        .from(0.05, 3600)
        .with_default(),
    Setting{"--test", "federate serve", "Folder with held-out data for an evaluation after each round"}
        .under("Evaluation")
        .reading(Reads::folder, "FOLDER"),
    Setting{"--tested", "federate serve", "So many examples of it"}
        .under("Evaluation")
        .from(1, 1'000'000'000)
        .with_default(),
    Setting{"--resume", "federate serve", "Go on from the newest checkpoint; --rounds may be more than before"}
        .no_variable(),
    Setting{"--hide-labels", kSimulations,
            "Clients do not send counts of classes; the distance of their updates replaces them"}
        .under("Simulation"),
    Setting{"--speed", kSimulations, "Examples a second that the fastest class of devices trains in float"}
        .under("Simulation")
        .from(1e-3, 1e9)
        .with_default(),
    Setting{"--fake-share", kSimulations, "How much longer a step of Q takes than one in float"}
        .under("Simulation")
        .from(0, 100)
        .with_default(),
    Setting{"--tested", kSimulations, "Examples of an evaluation"}
        .under("Simulation")
        .from(1, 1'000'000)
        .with_default(),
    Setting{"--eval-every", kSimulations, "Rounds between evaluations"}
        .under("Simulation")
        .from(1, 1'000'000)
        .with_default(),
    Setting{"data", kSimulations, "Folder of IDX files: train-.. and t10k-..; or with text.txt"}
        .reading(Reads::folder, "FOLDER")
        .required(),
    Setting{"--how", "federate simulate", "How data are parted: iid, dir:ALPHA, client:ALPHA"}.with_default(),
    Setting{"--clients", "federate simulate,federate study,federate partition", "So many"}
        .from(1, 100'000)
        .with_default(),
    Setting{"--examples", kSimulations, "Number of examples to draw; 0: all"}.from(0, 1'000'000'000),
    Setting{"--measure", "federate simulate", "Seconds to measure for what Q costs on this machine; 0: not at all"}
        .under("Simulation")
        .from(0, 600),
    Setting{"-o,--out", "federate study", "Folder of the page"}.writing(Writes::folder, "DIR").required(),
    Setting{"--how", "federate study", "How data are parted, apart by commas: iid, dir:ALPHA, client:ALPHA"}
        .list()
        .with_default(),
    Setting{"--with", "federate study", "federate.json of a study whose runs are not made again; repeatable"}.reading(
        Reads::file, "FILE"),
    Setting{"--seeds", "federate study", "Runs of each"}.from(1, 100).with_default(),
    Setting{"--family", "federate serve", "Family of models/*.lum with logits and a loss of what examples show"}.takes(
        "NAME"),
    Setting{"--family", kSimulations, "Family of models/*.lum with logits and a loss of what examples show"}
        .required()
        .takes("NAME"),
    Setting{"--shape", kRuns, "Size that the family names"}.takes("NAME"),
    Setting{"--config", kRuns, "A config value; repeatable"}.takes("KEY=NUMBER"),
    Setting{"--weights", kRuns, "Format of weights in P and Q"}.under("Number types").takes("FORMAT"),
    Setting{"--activations", kRuns, "Format of the inputs of products: one scale for the whole tensor"}
        .under("Number types")
        .takes("FORMAT"),
    Setting{"--gradients", kRuns, "The same, in P, of gradients that are multiplied by weights"}
        .under("Number types")
        .takes("FORMAT"),
    Setting{"--upload", kRuns, "Format of what clients send; without it that of the weights"}
        .under("Number types")
        .takes("FORMAT"),
    Setting{"!--no-feedback", kRuns, "Drop the rounding error of an upload instead of adding it to the next one"}.under(
        "Number types"),
    Setting{"--epochs", kRuns, "Passes over its data that a client makes in a round"}.from(1, 100'000).with_default(),
    Setting{"-b,--batch", kRuns, "Examples of a step"}.from(1, 1 << 16).with_default(),
    Setting{"--lr,--rate", kRuns, "Learning rate"}.from(1e-9, 10).with_default(),
    Setting{"--refresh", kRuns, "In P: steps between encodings of the weights; 0: once for each epoch"}
        .under("Number types")
        .from(0, 1'000'000'000)
        .with_default(),
    Setting{"--rounds", kRuns, "Rounds"}.from(1, 1'000'000'000).with_default(),
    Setting{"--sampled", kRuns, "Clients of a round"}.from(1, 1'000'000).with_default(),
    Setting{"--seed", kRuns, "Seed of weights, of the sampled clients and of all other random numbers"}
        .from(0, 0xffffffff)
        .with_default(),
    Setting{"--method", "federate serve,federate simulate",
            "How clients train: float, P, Q; random, speed, data: mixtures; coarse, full: chosen by measurements"}
        .with_default(),
    Setting{"--kappa", kRuns, "Additional weight of errors for skewed labels"}
        .under("Allocation")
        .from(0, 1000)
        .with_default(),
    Setting{"--slack", kRuns, "Share of the slowest client's time that Q may take longer at no cost"}
        .under("Allocation")
        .from(0, 10)
        .with_default(),
    Setting{"--lambda", kRuns, "Weight of time relative to errors"}.under("Allocation").from(0, 1000).with_default(),
    Setting{"--every", kRuns, "Rounds between adjustments"}.under("Allocation").from(1, 1'000'000).with_default(),
    Setting{"--first", kRuns, "Number of first windows that try other allocations"}
        .under("Allocation")
        .from(1, 1'000'000)
        .with_default(),
    Setting{"-o,--out", "federate partition", "Folder to write"}.writing(Writes::folder, "FOLDER").required(),
    Setting{"--how", "federate partition",
            "iid; dir:ALPHA, each class divided by a Dirichlet draw; client:ALPHA, each client's mixture drawn; roles: "
            "who speaks in a play"}
        .with_default(),
    Setting{"--images", "federate partition", "Number of images to draw; 0: all"}.from(0, 1'000'000'000),
    Setting{"--least-letters", "federate partition", "Skip roles with fewer letters"}
        .from(1, 1'000'000'000)
        .with_default(),
    Setting{"--seed", "federate partition", "Of what is drawn"}.from(0, 0xffffffff).with_default(),
};

}  // namespace

std::span<const Setting> federate_rows() {
  return kRows;
}

}  // namespace lumen::cli
