// Sends files to a server that writes them to its disk, chunk by chunk, whatever their size:
//
//     remote_write serve tcp://127.0.0.1:7000 directory
//     remote_write put tcp://127.0.0.1:7000 big.dat copy.dat --sync
//     remote_write demo
//
// A put ends when the server's kernel has all bytes; with --sync, when its disk has them. The
// printed speed is that of the slowest of four: reading the local file, the wire, the server's page
// cache, and its disk with --sync or once that cache is full of unwritten data. The hash is
// computed afterwards.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "client.hpp"
#include "demo.hpp"
#include "server.hpp"

namespace remote_write {
namespace {

/// An invalid command line, described in one sentence.
struct usage_error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A command line: words, and options with their values, if any.
struct command_line {
    std::vector<std::string> words;
    std::map<std::string, std::string> options;

    bool has(const std::string& flag) const { return options.count(flag) != 0; }
    /// A number from 1 to `most`; bytes may end in KiB, MiB or GiB.
    std::uint64_t number(const std::string& option, std::uint64_t otherwise,
                         std::uint64_t most) const {
        const auto given = options.find(option);
        if (given == options.end()) return otherwise;
        const std::string& text = given->second;
        std::uint64_t value = 0;
        const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
        const std::map<std::string, unsigned> shifts{
            {"", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}};
        const auto unit = shifts.find(std::string(end, text.data() + text.size()));
        if (wrong != std::errc{} || unit == shifts.end() || value == 0 ||
            value > (most >> unit->second))
            throw usage_error(option + " is \"" + text + "\", expected a number from 1 to " +
                              std::to_string(most) + "; example: " + option + " 4");
        return value << unit->second;
    }
};

/// Arguments of one command.
struct command {
    const char* usage;
    std::size_t words;
    std::vector<std::string> options;
    std::vector<std::string> flags;  ///< Options without a value.
    int (*run)(const command_line&);
};

void print(const transfer& done) {
    std::printf("%llu bytes, %.3f s, %.1f MiB/s, SHA-256 %s\n",
                static_cast<unsigned long long>(done.bytes), done.seconds, done.mib_per_second(),
                done.sha256.c_str());
}

int run_serve(const command_line& line) {
    const server_options options{
        .uri = line.words[0],
        .directory = line.words[1],
        .transfers = static_cast<unsigned>(line.number("--transfers", 4, 1024)),
        .disk_streams = static_cast<unsigned>(line.number("--disk-streams", 2, 64))};
    serve(options, [](const std::string& address) {
        std::printf("%s\n", address.c_str());
        std::fflush(stdout);
    });
    return 0;
}

int run_put(const command_line& line) {
    const auto pieces = static_cast<unsigned>(line.number("--segments", 1, 1024));
    print(client(line.words[0]).put(line.words[1], line.words[2], pieces, line.has("--sync")));
    return 0;
}

int run_get(const command_line& line) {
    print(client(line.words[0]).get(line.words[1], line.words[2]));
    return 0;
}

int run_stat(const command_line& line) {
    const file_info info = client(line.words[0]).stat(line.words[1]);
    const std::time_t seconds = info.modified_seconds;
    char when[32] = "?";
    std::tm parts{};
    if (::gmtime_r(&seconds, &parts) != nullptr)
        std::strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &parts);
    std::printf("%llu bytes, modified %s\n", static_cast<unsigned long long>(info.bytes), when);
    return 0;
}

int run_demo(const command_line& line) {
    demo_options options;
    options.bytes = line.number("--bytes", options.bytes, std::uint64_t{1} << 40);
    options.clients = static_cast<unsigned>(line.number("--clients", options.clients, 64));
    const auto uri = line.options.find("--uri");
    if (uri != line.options.end()) options.uri = uri->second;
    return demo(options) ? 0 : 1;
}

const std::map<std::string, command> commands{
    {"serve",
     {"serve URI DIRECTORY [--transfers 4] [--disk-streams 2]",
      2,
      {"--transfers", "--disk-streams"},
      {},
      run_serve}},
    {"put",
     {"put ADDRESS FILE NAME [--segments 1] [--sync]", 3, {"--segments"}, {"--sync"}, run_put}},
    {"get", {"get ADDRESS NAME FILE", 3, {}, {}, run_get}},
    {"stat", {"stat ADDRESS NAME", 2, {}, {}, run_stat}},
    {"demo",
     {"demo [--bytes 64MiB] [--clients 4] [--uri shm://]",
      0,
      {"--bytes", "--clients", "--uri"},
      {},
      run_demo}}};

int run(const std::vector<std::string>& arguments) {
    const auto chosen = arguments.empty() ? commands.end() : commands.find(arguments[0]);
    if (chosen == commands.end())
        throw usage_error((arguments.empty()
                               ? "there is no command"
                               : "the command \"" + arguments[0] + "\" is not known") +
                          std::string(", expected serve, put, get, stat or demo; example: "
                                      "remote_write demo"));
    const command& what = chosen->second;
    command_line line;
    for (std::size_t i = 1; i < arguments.size(); ++i) {
        const std::string& word = arguments[i];
        if (word.rfind("--", 0) != 0) {
            line.words.push_back(word);
            continue;
        }
        const auto among = [&word](const std::vector<std::string>& known) {
            return std::find(known.begin(), known.end(), word) != known.end();
        };
        if (among(what.flags)) {
            line.options[word] = {};
            continue;
        }
        const bool known = among(what.options);
        if (!known || i + 1 == arguments.size())
            throw usage_error("the option " + word + (known ? " has no value" : " is not known") +
                              ", expected: remote_write " + what.usage);
        line.options[word] = arguments[++i];
    }
    if (line.words.size() != what.words)
        throw usage_error(chosen->first + " has " + std::to_string(line.words.size()) +
                          " words after it, expected: remote_write " + what.usage);
    return what.run(line);
}

}  // namespace
}  // namespace remote_write

int main(int argc, char** argv) {
    try {
        return remote_write::run({argv + 1, argv + argc});
    } catch (const remote_write::usage_error& wrong) {
        std::fprintf(stderr, "remote_write: %s\n", wrong.what());
        return 2;
    } catch (const std::exception& failed) {
        std::fprintf(stderr, "remote_write: %s\n", failed.what());
        return 1;
    }
}
