#pragma once

#include <string>

#include <amalgam/flow/live_page.hpp>

#include "stats/number_source.hpp"
#include "top/tables.hpp"

namespace amalgam::tool {

/// "tcp://127.0.0.1:7000 shm://store", "--directory host://": a page's title. Of a run its command
/// is.
std::string title_of(const number_options& whose);

/// What the page shows of numbers. `silent`: sentences about those that did not answer.
page_state state_of(const top_model& model, const numbers_told& told);

/// Serves a live page of these numbers at that address until the process is ended. Who goes silent
/// is shown as lost, and asked again each time.
/// Failure: throws error as live_page does; also if nobody could be asked at the first time.
void show_as_page(number_source& from, const std::string& title, const std::string& address,
                  double interval);

}  // namespace amalgam::tool
