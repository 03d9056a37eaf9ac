# Stops thread 37 of CTA 0 at the barrier after the first tile of K and V, steps over it and on, while the
# other threads of the CTA take their turns unseen.
set pagination off
list 02_online_softmax.cu:1,1
forward-search size_t tile =
forward-search __syncthreads
break $_ if emu::at(37, 0)
run --heads 1 --seq-len 128
print emu::where()
delete
next
next
next
next
print emu::where()
print rK
print row_max
