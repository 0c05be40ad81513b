// UCX's own start and end: a program that makes a context and a worker over tcp, with the same
// wishes as the plug-in, and takes them down.
//   first_ucx    milliseconds
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>

#include <ucp/api/ucp.h>

#include "spawned.hpp"

namespace {

using namespace amalgam;

void check(ucs_status_t status, const char* what) {
    if (status != UCS_OK)
        throw error(errc::internal, std::string(what) + ": " + ucs_status_string(status));
}

void begin_and_end() {
    ucp_config_t* config = nullptr;
    check(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
    check(ucp_config_modify(config, "TLS", "tcp"), "ucp_config_modify");
    check(ucp_config_modify(config, "NET_DEVICES", "lo"), "ucp_config_modify");
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    ucp_context_h context = nullptr;
    check(ucp_init(&params, config, &context), "ucp_init");
    ucp_config_release(config);
    ucp_worker_params_t how{};
    how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    how.thread_mode = UCS_THREAD_MODE_SINGLE;
    ucp_worker_h worker = nullptr;
    check(ucp_worker_create(context, &how, &worker), "ucp_worker_create");
    int wakes_by = -1;
    check(ucp_worker_get_efd(worker, &wakes_by), "ucp_worker_get_efd");
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

}  // namespace

int main(int argc, char** argv) {
    return bench::main_of_a_start(argc, argv, begin_and_end);
}
