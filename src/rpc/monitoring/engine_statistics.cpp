#include <amalgam/rpc/engine.hpp>
#include <amalgam/rpc/engine_statistics.hpp>

#include "rpc/core/core.hpp"
#include "rpc/statistics/statistics_file.hpp"

namespace amalgam {

engine_statistics read_statistics(engine& here) {
    return here.core().read_statistics();
}

void write_statistics(engine& here, std::string_view file) {
    const std::string text = to_json(read_statistics(here));
    const std::string path = here.core().statistics_file(file);
    if (path.empty()) {
        throw error(errc::invalid,
                    "the engine has no file for its statistics, expected one here or in "
                    "engine_options::statistics; example: write_statistics(engine, "
                    "\"/tmp/statistics.{host}.{pid}.json\")");
    }
    detail::write_statistics_file(path, text);
}

}  // namespace amalgam
