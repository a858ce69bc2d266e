// A library that says it is this version of NCCL, and has nothing more to offer.
extern "C" int ncclGetVersion(int* version) {
  *version = DELTAD_NCCL_VERSION;
  return 0;
}
