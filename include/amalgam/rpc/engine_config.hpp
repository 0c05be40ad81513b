#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <amalgam/core/result.hpp>
#include <amalgam/rpc/engine.hpp>

namespace amalgam {

/// Configuration of an engine: `engine{config}`. The JSON form uses the names and defaults of
/// engine_options. Only `endpoints` is required, a URI or a list of URIs:
///
///     {"endpoints": ["tcp://127.0.0.1:0", "shm://"],
///      "pools": {"io": {"kind": "fifo"}, "work": {"kind": "priority", "levels": 4}},
///      "streams": [{"name": "net", "cpu": 0}, {"pools": ["work", "io"], "cpus": "numa:1"},
///                  {"pools": ["work"]}],
///      "handlers": "work",
///      "progress": {"by": "own_stream", "spin": "always"},
///      "spin": "20us", "drain": "1s", "max_running": 1000,
///      "encoding": "xdr", "checksum": true,
///      "statistics": {"file": "/tmp/statistics.{host}.{pid}.json"},
///      "ports": {"silence_limit": "5s", "insecure": false}}
///
/// `streams` may also be a number, and `cpus` is text as cpu_set reads it. Times are numbers with a
/// unit: ns, us, ms or s. `spin` may also be "adaptive" or "always". `encoding` is "native" or
/// "xdr". JSON has no form for `engine_options::transports` and `interceptors`.
struct engine_config {
    std::vector<std::string> endpoints;  ///< URIs to listen at.
    engine_options options{};            ///< The rest.
};

/// Parses a config. `origin` ("engine.json") prefixes every error message.
///
/// Failure: `invalid`, with one sentence that names the key, what was expected, and an example:
///          engine.json: streams[1].cpu is "two", expected a number from -1 to 1023; example: 0
result<engine_config> parse_engine_config(std::string_view json,
                                          std::string_view origin = "config");

/// Reads the file at `path`. Fails as parse_engine_config(), and with `not_found` if it cannot be
/// read, `invalid` if it is longer than 16 MiB.
result<engine_config> load_engine_config(const std::string& path);

/// Changes a running engine: adds pools with streams of their own, and streams to pools; moves
/// procedures to other pools; then removes streams, and pools that were added. Calls go on
/// meanwhile. In this order, each key optional:
///
///     {"add_pools": {"io": {"kind": "shared_fifo", "streams": 2}},
///      "add_streams": [{"name": "io-3", "pools": ["io", "work"], "cpus": "numa:1"}],
///      "move": [{"name": "sum", "to": "io"}, {"name": "shelf.put", "provider": 3, "to": "io"}],
///      "remove_streams": ["worker"],
///      "remove_pools": ["old"]}
///
/// Failure: throws error{invalid} for a mistake in the text, before any change; else what
///          engine::add_pool(), add_stream(), move_procedure(), remove_stream() and remove_pool()
///          throw, and error{not_found} for a pool that was not added, or a stream that is not
///          there. The sentence begins with the place: "changes: move[1]: …".
///          Then procedures and removed streams are back (a stream of the options as one that was
///          added), and added streams and pools are gone unless something runs there already; pools
///          that were removed before do not come back.
void change_engine(engine& running, std::string_view json, std::string_view origin = "changes");

/// The config as JSON on one line, with every key; parse_engine_config() reads it back.
std::string to_json(const engine_config& config);

}  // namespace amalgam
