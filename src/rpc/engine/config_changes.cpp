#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <amalgam/core/detail/printable.hpp>
#include <amalgam/rpc/engine_config.hpp>

#include "core/json_reader.hpp"
#include "rpc/engine/config_words.hpp"

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
    std::vector<moved_procedure> moved;
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

engine_changes read_changes(const json_reader& from) {
    from.expect_object({"add_pools", "move", "remove_pools"}, changes_example);
    engine_changes all;
    if (from.has("add_pools")) {
        const json_reader pools = from.at("add_pools");
        if (!pools.value().is_object())
            pools.unexpected("an object of pools by name", R"({"io": {"streams": 2}})");
        for (const auto& [name, ignored] : pools.value().items())
            all.added.push_back(read_added(pools.at(name), name));
    }
    if (from.has("move")) {
        const json_reader moves = from.at("move");
        if (!moves.value().is_array())
            moves.unexpected("a list of procedures", R"([{"name": "sum", "to": "io"}])");
        for (std::size_t i = 0; i < moves.value().size(); ++i)
            all.moved.push_back(read_moved(moves.at(i)));
    }
    if (from.has("remove_pools")) {
        const json_reader pools = from.at("remove_pools");
        if (!pools.value().is_array()) pools.unexpected("a list of pool names", R"(["io"])");
        for (std::size_t i = 0; i < pools.value().size(); ++i)
            all.removed.push_back(pools.at(i).text("a pool name", R"("io")"));
    }
    return all;
}

}  // namespace

void change_engine(engine& running, std::string_view json, std::string_view origin) {
    const json_reader::json document = json_reader::parse(json, origin, changes_example);
    const engine_changes changes = read_changes(json_reader(document, "", origin));
    for (const added_pool& each : changes.added)
        running.add_pool(each.how, each.streams);
    for (const moved_procedure& each : changes.moved)
        running.move_procedure(each.name, each.to, each.provider);
    for (const std::string& each : changes.removed) {
        if (!running.remove_pool(each))
            throw error(errc::not_found,
                        detail::printable_name(fmt::format(
                            "{}: this engine has no added pool \"{}\" to remove", origin, each)));
    }
}

}  // namespace amalgam
