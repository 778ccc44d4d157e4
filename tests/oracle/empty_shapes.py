import torch, warnings
import torch.nn.functional as F
warnings.simplefilter("ignore")
def t(name, f):
    try:
        r=f()
        print(name, r)
    except Exception as e:
        print(name, "REFUSED", str(e).split("\n")[0][:110])
x=torch.zeros(0,3); z=torch.zeros(3,0)
t("max a1", lambda: x.amax(1)); t("max a0", lambda: x.amax(0)); t("max all", lambda: torch.zeros(0).amax())
t("var a0", lambda: x.var(0)); t("var a1", lambda: x.var(1)); t("mean a0", lambda: x.mean(0)); t("sum", lambda: x.sum(0))
t("argmax a1", lambda: x.argmax(1)); t("argmax a0", lambda: x.argmax(0))
t("softmax0", lambda: x.softmax(0)); t("softmax1", lambda: z.softmax(1)); t("logsoftmax", lambda: z.log_softmax(1))
t("pad const zero dim", lambda: F.pad(x,(0,0,1,2),value=0.5))
for m in ("reflect","replicate","circular"):
    t("pad "+m+" batch0", lambda: F.pad(torch.zeros(0,2,5),(1,1),mode=m).shape)
    t("pad "+m+" size0", lambda: F.pad(torch.zeros(2,2,0),(1,1),mode=m).shape)
t("gather", lambda: torch.zeros(2,3).gather(1, torch.zeros(2,0,dtype=torch.long)).shape)
def gg():
    a=torch.zeros(2,3,requires_grad=True); a.gather(1, torch.zeros(2,0,dtype=torch.long)).sum().backward(); return a.grad
t("gather_grad", gg)
def conv():
    c=torch.nn.Conv2d(3,4,3); v=torch.zeros(0,3,8,8,requires_grad=True); y=c(v); y.sum().backward(); return y.shape,c.weight.grad.abs().sum(),c.bias.grad,v.grad.shape
t("conv", conv)
def convt():
    c=torch.nn.ConvTranspose2d(3,4,3); v=torch.zeros(0,3,8,8,requires_grad=True); y=c(v); y.sum().backward(); return y.shape,c.weight.grad.abs().sum(),c.bias.grad,v.grad.shape
t("convT", convt)
t("maxpool", lambda: F.max_pool2d(torch.zeros(0,3,8,8),2).shape); t("maxpool size0", lambda: F.max_pool2d(torch.zeros(1,3,0,8),2).shape)
t("avgpool", lambda: F.avg_pool2d(torch.zeros(0,3,8,8),2).shape); t("adaptive", lambda: F.adaptive_avg_pool2d(torch.zeros(0,3,8,8),2).shape); t("adaptive size0", lambda: F.adaptive_avg_pool2d(torch.zeros(1,3,0,8),2).shape)
t("upsample", lambda: F.interpolate(torch.zeros(0,3,8,8),scale_factor=2).shape); t("bilinear", lambda: F.interpolate(torch.zeros(0,3,8,8),scale_factor=2,mode='bilinear').shape)
def bn(train):
    b=torch.nn.BatchNorm1d(3); b.train(train); v=torch.zeros(0,3,requires_grad=True); y=b(v); y.sum().backward(); return y.shape,b.running_mean,b.running_var,b.weight.grad,b.bias.grad,b.num_batches_tracked
t("bn train", lambda: bn(True)); t("bn eval", lambda: bn(False))
def ln(shape,n):
    l=torch.nn.LayerNorm(n); v=torch.zeros(shape,requires_grad=True); y=l(v); y.sum().backward(); return y.shape,l.weight.grad,l.bias.grad
t("ln", lambda: ln((0,3),3)); t("ln0", lambda: ln((3,0),0))
def gn():
    l=torch.nn.GroupNorm(2,4); v=torch.zeros(0,4,3,requires_grad=True); y=l(v); y.sum().backward(); return y.shape,l.weight.grad,l.bias.grad
t("gn", gn); t("gn size0", lambda: torch.nn.GroupNorm(2,4)(torch.zeros(2,4,0)).shape)
for red in ("mean","sum","none"):
    t("ce "+red, lambda: F.cross_entropy(torch.zeros(0,3),torch.zeros(0,dtype=torch.long),reduction=red))
    t("ce soft "+red, lambda: F.cross_entropy(torch.zeros(0,3),torch.zeros(0,3),reduction=red))
    t("ce smooth "+red, lambda: F.cross_entropy(torch.zeros(0,3),torch.zeros(0,dtype=torch.long),reduction=red,label_smoothing=0.1))
    t("nll "+red, lambda: F.nll_loss(torch.zeros(0,3),torch.zeros(0,dtype=torch.long),reduction=red))
    for n in ("mse_loss","l1_loss","smooth_l1_loss","huber_loss","binary_cross_entropy","binary_cross_entropy_with_logits","kl_div"):
        t(n+" "+red, lambda: getattr(F,n)(torch.zeros(0,3),torch.zeros(0,3),reduction=red))
t("kl batchmean", lambda: F.kl_div(torch.zeros(0,3),torch.zeros(0,3),reduction="batchmean"))
t("emb", lambda: F.embedding(torch.zeros(0,dtype=torch.long), torch.zeros(4,3)).shape)
t("dropout", lambda: F.dropout(x).shape)
