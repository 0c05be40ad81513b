// libfabric's own start and end: a program that opens a domain of its provider tcp, listens there
// as the plug-in does, and closes all.
//   first_ofi    milliseconds
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include "spawned.hpp"

namespace {

using namespace amalgam;

void check(int code, const char* what) {
    if (code != 0) throw error(errc::internal, std::string(what) + ": " + fi_strerror(-code));
}

fi_info* found() {
    fi_info* hints = fi_allocinfo();
    hints->caps = FI_MSG;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_MSG;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = ::strdup("tcp");
    fi_info* all = nullptr;
    check(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", "0", FI_SOURCE | FI_NUMERICHOST, hints, &all),
          "fi_getinfo");
    fi_freeinfo(hints);
    return all;
}

void begin_and_end() {
    fi_info* const info = found();
    fid_fabric* fabric = nullptr;
    check(fi_fabric(info->fabric_attr, &fabric, nullptr), "fi_fabric");
    fid_domain* domain = nullptr;
    check(fi_domain(fabric, info, &domain, nullptr), "fi_domain");
    fi_eq_attr happenings{};
    happenings.wait_obj = FI_WAIT_FD;
    fid_eq* events = nullptr;
    check(fi_eq_open(fabric, &happenings, &events, nullptr), "fi_eq_open");
    fi_cq_attr completions{};
    completions.format = FI_CQ_FORMAT_DATA;
    completions.wait_obj = FI_WAIT_FD;
    fid_cq* done = nullptr;
    check(fi_cq_open(domain, &completions, &done, nullptr), "fi_cq_open");
    fid_pep* listener = nullptr;
    check(fi_passive_ep(fabric, info, &listener, nullptr), "fi_passive_ep");
    check(fi_pep_bind(listener, &events->fid, 0), "fi_pep_bind");
    check(fi_listen(listener), "fi_listen");
    for (fid* each : {&listener->fid, &done->fid, &events->fid, &domain->fid, &fabric->fid})
        check(fi_close(each), "fi_close");
    fi_freeinfo(info);
}

}  // namespace

int main(int argc, char** argv) {
    return bench::main_of_a_start(argc, argv, begin_and_end);
}
