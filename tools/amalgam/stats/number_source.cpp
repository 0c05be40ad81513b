#include "stats/number_source.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include <amalgam/core/merged_metrics.hpp>
#include <amalgam/core/uri.hpp>
#include <amalgam/directory/context.hpp>
#include <amalgam/directory/host_directory.hpp>
#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/metrics.hpp>

#include "call/shown.hpp"
#include "commands.hpp"
#include "credentials_option.hpp"

namespace amalgam::tool {
namespace {

constexpr std::size_t longest_sentence = 8192;

std::string sentence_of(const std::string& whose, const error& why) {
    return fmt::format("{}: {}", whose, shown(why.what(), longest_sentence));
}

error unknown_process(const std::string& process) {
    return error(errc::not_found,
                 fmt::format("there is no process \"{}\" here any more", shown(process)));
}

class engines_source final : public number_source {
public:
    explicit engines_source(const number_options& options)
        : names_(options.uris), timeout_(options.timeout_ms) {
        std::vector<std::string> ports;
        for (const std::string& each : options.uris) {
            uris_.push_back(of_argument(
                "uri", [&] { return with_credentials("uri", each, options.credentials); }));
            const std::string one = client_uri(uri::parse(uris_.back()));
            if (std::find(ports.begin(), ports.end(), one) == ports.end()) ports.push_back(one);
        }
        client_ = std::make_unique<engine>(ports, engine_options{.name = "stats"});
    }

    numbers_told read() override {
        numbers_told all;
        for (std::size_t i = 0; i < uris_.size(); ++i) {
            try {
                const peer there = of_argument("uri", [&] { return client_->lookup(uris_[i]); });
                all.processes.push_back({names_[i], read_metrics(*client_, there, timeout_)});
            } catch (const error& why) {
                if (uris_.size() == 1) throw;
                all.silent.push_back(sentence_of(shown(names_[i]), why));
            }
        }
        return all;
    }

    ult_report read_ults(const std::string& process) override {
        const auto at = std::find(names_.begin(), names_.end(), process);
        if (at == names_.end()) throw unknown_process(process);
        const std::string& address = uris_[static_cast<std::size_t>(at - names_.begin())];
        return amalgam::read_ults(*client_, client_->lookup(address), timeout_);
    }

private:
    const std::vector<std::string> names_;
    const std::chrono::milliseconds timeout_;
    std::vector<std::string> uris_;
    std::unique_ptr<engine> client_;
};

class run_source final : public number_source {
public:
    explicit run_source(const number_options& options) : timeout_(options.timeout_ms) {
        try {
            asked_ = std::stoi(options.run);
        } catch (const std::exception&) {
            asked_ = -1;
        }
        if (asked_ < 0)
            throw CLI::ValidationError(
                "--run", fmt::format("\"{}\" is no process id, expected that of an `amalgam run`; "
                                     "example: amalgam stats --run 4711",
                                     options.run));
    }

    numbers_told read() override {
        numbers_told all;
        try {
            all.run = read_run(launcher_ != 0 ? launcher_ : asked_, timeout_);
        } catch (const error& why) {
            // It is over: the next one may be the only run again.
            if (why.code() != errc::timed_out) launcher_ = 0;
            throw;
        }
        launcher_ = all.run->launcher;  // From now on this one, if others start.
        for (const process_status& each : all.run->processes) {
            const std::vector<metric_part> parts{{{}, each.metrics}, {{}, to_metrics(each.report)}};
            all.processes.push_back({each.label, merge_metrics(parts)});
            if (each.running && !each.answered)
                all.silent.push_back(fmt::format("{} ({}) did not answer", each.label, each.where));
        }
        return all;
    }

    ult_report read_ults(const std::string& process) override {
        return read_run_ults(process, launcher_ != 0 ? launcher_ : asked_, timeout_);
    }

private:
    const std::chrono::milliseconds timeout_;
    int asked_ = 0;     // 0: the only run.
    int launcher_ = 0;  // Of the run that was read last; 0: none.
};

class directory_source final : public number_source {
public:
    explicit directory_source(const number_options& options) : timeout_(options.timeout_ms) {
        address_ = with_credentials("--directory", options.directory, options.credentials);
        const uri at = uri::parse(address_);
        context_options how{.directory = address_};
        here_ = is_encrypted(at)
                    ? std::make_unique<context>(std::vector<std::string>{client_uri(at)}, how)
                    : std::make_unique<context>(how);
    }

    numbers_told read() override {
        numbers_told all;
        peers_.clear();
        add(all, "directory", [&] { return here_->where().lookup(address_); });
        attribute_list query;
        query.ask("context.addresses", 1024);
        for (const found_resource& each : here_->search(query)) {
            if (each.id == here_->id()) continue;
            const std::string addresses(each.what.text("context.addresses"));
            const std::string first = addresses.substr(0, addresses.find('\n'));
            const std::string name = first.empty()
                                         ? fmt::format("context {}", static_cast<unsigned>(each.id))
                                         : shown(first);
            add(all, name, [&] { return here_->lookup(each); });
        }
        return all;
    }

    ult_report read_ults(const std::string& process) override {
        const auto at = peers_.find(process);
        if (at == peers_.end()) throw unknown_process(process);
        return amalgam::read_ults(here_->where(), at->second, timeout_);
    }

private:
    template <typename Find>
    void add(numbers_told& all, const std::string& name, Find find) {
        try {
            const peer there = find();
            all.processes.push_back({name, read_metrics(here_->where(), there, timeout_)});
            peers_.insert_or_assign(name, there);
        } catch (const error& why) {
            all.silent.push_back(sentence_of(name, why));
        }
    }

    const std::chrono::milliseconds timeout_;
    std::string address_;
    std::unique_ptr<context> here_;
    std::map<std::string, peer> peers_;  // Those that answered last, by name.
};

}  // namespace

metric_snapshot numbers_told::merged() const {
    if (run) return run->metrics();
    std::vector<metric_part> parts;
    for (const process& each : processes)
        parts.push_back({{{"process", each.name}}, each.numbers});
    return merge_metrics(parts);
}

void add_numbers(CLI::App& command, number_options& options) {
    command.add_option("uri", options.uris, "The engines' addresses")
        ->check(CLI::Validator(&refusal_of_address, ""));
    command
        .add_option("--run", options.run,
                    "All processes of a run of `amalgam run` on this host, by the process id of "
                    "its launcher; none: the only one")
        ->expected(0, 1)
        ->default_str("0");
    command
        .add_option("--directory", options.directory,
                    "All processes that have a context at this directory or those that it knows, "
                    "by its address; none: this host's")
        ->check(CLI::Validator(&refusal_of_address, ""))
        ->expected(0, 1)
        ->default_str(std::string(host_directory));
    add_credentials(command, options.credentials);
    command.add_option("--timeout", options.timeout_ms, "Milliseconds to wait for each answer")
        ->check(CLI::Range(1, 3600000))
        ->capture_default_str();
}

void check(const number_options& options) {
    const int given = (options.uris.empty() ? 0 : 1) + options.of_run() + options.of_directory();
    if (given == 1) return;
    throw CLI::ValidationError(
        "uri", fmt::format("{} places to ask are given, expected one: the addresses of engines, "
                           "--run or --directory",
                           given == 0 ? "no" : "several"));
}

std::unique_ptr<number_source> open_numbers(const number_options& options) {
    if (options.of_run()) return std::make_unique<run_source>(options);
    if (options.of_directory()) return std::make_unique<directory_source>(options);
    return std::make_unique<engines_source>(options);
}

}  // namespace amalgam::tool
