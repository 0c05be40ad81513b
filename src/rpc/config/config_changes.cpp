#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/rpc/engine_config.hpp>
#include <amalgam/rpc/extension/inside.hpp>

#include "core/text/json_reader.hpp"
#include "rpc/config/config_read.hpp"
#include "rpc/config/config_words.hpp"
#include "rpc/core/core.hpp"

// Changes of a running engine, from JSON.

namespace amalgam {

namespace {

using detail::json_reader;

constexpr std::string_view changes_example =
    R"({"add_pools": {"io": {"streams": 2}}, "move": [{"name": "sum", "to": "io"}]})";

struct added_pool {
    pool_options how;
    unsigned streams = 1;
};

struct moved_procedure {
    std::string name;
    std::string to;
    std::uint16_t provider = 0;
};

struct engine_changes {
    std::vector<added_pool> added;
    std::vector<stream_options> more_streams;
    std::vector<moved_procedure> moved;
    std::vector<std::string> removed_streams;
    std::vector<std::string> removed;
};

added_pool read_added(const json_reader& from, const std::string& name) {
    from.expect_object({"kind", "levels", "streams"}, R"({"streams": 2})");
    added_pool one{.how = {.name = name}};
    if (from.has("kind")) one.how.kind = from.at("kind").word(detail::pool_words);
    if (from.has("levels")) {
        one.how.levels = static_cast<unsigned>(from.at("levels").number(1, 256, 4));
    }
    if (from.has("streams")) {
        one.streams = static_cast<unsigned>(from.at("streams").number(1, 1024, 2));
    }
    return one;
}

moved_procedure read_moved(const json_reader& from) {
    constexpr std::string_view example = R"({"name": "sum", "to": "io"})";
    from.expect_object({"name", "to", "provider"}, example);
    if (!from.has("name") || !from.has("to"))
        from.unexpected("a procedure's name and a pool", example);
    moved_procedure one;
    one.name = from.at("name").text("a procedure", R"("sum")");
    one.to = from.at("to").text("a pool or stream", R"("io")");
    if (from.has("provider")) {
        one.provider = static_cast<std::uint16_t>(from.at("provider").number(0, 65535, 2));
    }
    return one;
}

/// `example`: of one, in quotes.
std::vector<std::string> read_names(const json_reader& from, std::string_view key,
                                    std::string_view of, std::string_view example) {
    std::vector<std::string> all;
    if (!from.has(key)) return all;
    const json_reader names = from.at(key);
    if (!names.value().is_array())
        names.unexpected(fmt::format("a list of {} names", of), fmt::format("[{}]", example));
    for (std::size_t i = 0; i < names.value().size(); ++i)
        all.push_back(names.at(i).text(fmt::format("a {} name", of), example));
    return all;
}

engine_changes read_changes(const json_reader& from) {
    from.expect_object({"add_pools", "add_streams", "move", "remove_streams", "remove_pools"},
                       changes_example);
    engine_changes all;
    if (from.has("add_pools")) {
        const json_reader pools = from.at("add_pools");
        if (!pools.value().is_object())
            pools.unexpected("an object of pools by name", R"({"io": {"streams": 2}})");
        for (const auto& [name, ignored] : pools.value().items())
            all.added.push_back(read_added(pools.at(name), name));
    }
    if (from.has("add_streams")) {
        const json_reader streams = from.at("add_streams");
        if (!streams.value().is_array())
            streams.unexpected("a list of streams", R"([{"pools": ["io"]}])");
        for (std::size_t i = 0; i < streams.value().size(); ++i)
            all.more_streams.push_back(detail::read_stream(streams.at(i)));
    }
    if (from.has("move")) {
        const json_reader moves = from.at("move");
        if (!moves.value().is_array())
            moves.unexpected("a list of procedures", R"([{"name": "sum", "to": "io"}])");
        for (std::size_t i = 0; i < moves.value().size(); ++i)
            all.moved.push_back(read_moved(moves.at(i)));
    }
    all.removed_streams = read_names(from, "remove_streams", "stream", R"("worker")");
    all.removed = read_names(from, "remove_pools", "pool", R"("io")");
    return all;
}

/// Changes made so far. Unless kept, the destructor takes them back as far as possible.
class steps {
public:
    explicit steps(engine& running) noexcept : running_(running) {}
    steps(const steps&) = delete;
    steps& operator=(const steps&) = delete;
    ~steps() {
        if (kept_) return;
        // A new stream may have to serve a pool before one that was added can leave it.
        take_back(removed_streams_, [&](const stream_options& how) { running_.add_stream(how); });
        take_back(places_, [&](place& before) { put_back(before); });
        take_back(streams_, [&](const std::string& name) { running_.remove_stream(name); });
        take_back(pools_, [&](const std::string& name) { running_.remove_pool(name); });
    }
    void keep() noexcept { kept_ = true; }

    void add(const added_pool& what) {
        pools_.reserve(pools_.size() + 1);
        std::string name = what.how.name;
        running_.add_pool(what.how, what.streams);
        pools_.push_back(std::move(name));
    }
    void add(const stream_options& what) {
        streams_.reserve(streams_.size() + 1);
        streams_.push_back(running_.add_stream(what));
    }
    void remove_stream(const std::string& name) {
        removed_streams_.reserve(removed_streams_.size() + 1);
        detail::check_may_wait(core());
        auto what = core().streams().remove_stream(name);
        if (!what)
            throw error(errc::not_found, fmt::format("this engine has no stream \"{}\" to remove",
                                                     detail::printable_name(name)));
        removed_streams_.push_back(std::move(*what));
    }
    void move(const moved_procedure& what) {
        places_.reserve(places_.size() + 1);
        place before{what.name, what.provider, 0, {}, false, {}, {}};
        core().on_stream([&] {
            const auto* const now = core().server().procedures().find(what.name, what.provider);
            if (now == nullptr) return;
            before.number = now->number;
            before.options = now->options;
            before.streams = now->streams;
            before.had_streams = now->streams != nullptr;
        });
        running_.move_procedure(what.name, what.to, what.provider);
        places_.push_back(std::move(before));
    }
    /// From here on pools that were added before may be removed.
    void begin_removing() {
        for (place& each : places_) {
            if (each.streams != nullptr && core().streams().was_added(each.streams->name()))
                each.of_added_pool = std::exchange(each.streams, nullptr);
        }
    }

private:
    struct place {
        std::string name;
        std::uint16_t provider;
        std::uint64_t number;
        procedure_options options;
        bool had_streams;
        std::shared_ptr<detail::stream_group> streams;
        std::weak_ptr<detail::stream_group> of_added_pool;
    };
    detail::engine_core& core() noexcept { return running_.core(); }
    /// Latest first, as far as possible.
    template <typename Step, typename Back>
    static void take_back(std::vector<Step>& steps, Back back) noexcept {
        for (; !steps.empty(); steps.pop_back()) {
            try {
                back(steps.back());
            } catch (const std::exception&) {
                // Something runs there meanwhile, or the engine has stopped.
            }
        }
    }
    void put_back(place& before) {
        if (before.streams == nullptr) before.streams = before.of_added_pool.lock();
        const bool was_removed = before.streams == nullptr && before.had_streams;
        if (was_removed) return;
        core().on_stream([&] {
            auto* const now = core().server().procedures().find(before.name, before.provider);
            if (now == nullptr || now->number != before.number) return;
            now->options = before.options;
            now->streams = std::move(before.streams);
        });
    }

    engine& running_;
    std::vector<std::string> pools_;
    std::vector<std::string> streams_;
    std::vector<place> places_;
    std::vector<stream_options> removed_streams_;
    bool kept_ = false;
};

/// Runs one step; an error says where in the text it stands.
template <typename Step>
void at(std::string_view origin, const std::string& where, Step step) {
    try {
        step();
    } catch (const error& why) {
        throw error(why.code(),
                    fmt::format("{}: {}: {}", origin, detail::printable_name(where), why.what()));
    }
}

/// The pools to remove that are not there now, and are not added before.
void check_removed(engine& running, const engine_changes& changes, std::string_view origin) {
    for (std::size_t i = 0; i < changes.removed.size(); ++i) {
        const std::string& name = changes.removed[i];
        const auto is_same = [&](const auto& each) { return each.how.name == name; };
        const bool twice = std::count(changes.removed.begin(), changes.removed.end(), name) > 1;
        const bool is_there = running.core().streams().was_added(name) ||
                              std::any_of(changes.added.begin(), changes.added.end(), is_same);
        if (is_there && !twice) continue;
        throw error(errc::not_found,
                    detail::printable_name(fmt::format(
                        "{}: remove_pools[{}]: this engine has no added pool \"{}\" to remove{}",
                        origin, i, name, twice ? " twice" : "")));
    }
}

}  // namespace

void change_engine(engine& running, std::string_view json, std::string_view origin) {
    const json_reader::json document = json_reader::parse(json, origin, changes_example);
    const engine_changes changes = read_changes(json_reader(document, "", origin));
    detail::check_runs(running.core());
    check_removed(running, changes, origin);
    steps done(running);
    for (const added_pool& each : changes.added)
        at(origin, "add_pools." + each.how.name, [&] { done.add(each); });
    for (std::size_t i = 0; i < changes.more_streams.size(); ++i)
        at(origin, fmt::format("add_streams[{}]", i), [&] { done.add(changes.more_streams[i]); });
    for (std::size_t i = 0; i < changes.moved.size(); ++i)
        at(origin, fmt::format("move[{}]", i), [&] { done.move(changes.moved[i]); });
    done.begin_removing();
    for (std::size_t i = 0; i < changes.removed_streams.size(); ++i)
        at(origin, fmt::format("remove_streams[{}]", i),
           [&] { done.remove_stream(changes.removed_streams[i]); });
    for (std::size_t i = 0; i < changes.removed.size(); ++i) {
        at(origin, fmt::format("remove_pools[{}]", i), [&] {
            if (running.remove_pool(changes.removed[i])) return;
            throw error(errc::not_found, "somebody else has removed the pool");
        });
    }
    done.keep();
}

}  // namespace amalgam
